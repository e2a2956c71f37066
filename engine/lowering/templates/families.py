"""Tries every family of templates on a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.lowering.structure import Structure
from engine.lowering.templates.attention import Attention
from engine.lowering.templates.columnwise import Columnwise
from engine.lowering.templates.constructor import Constructor
from engine.lowering.templates.elementwise import Elementwise
from engine.lowering.templates.everything import Everything
from engine.lowering.templates.graph import Graph, Mismatch, Unrelated
from engine.lowering.templates.matmul import Matmul
from engine.lowering.templates.pooling import Pooling
from engine.lowering.templates.reading import read
from engine.lowering.templates.rowwise import Rowwise
from engine.lowering.templates.summary import fused
from engine.lowering.templates.tuning import Target

_Family = Callable[[Graph, Constructor, Target], list[Structure]]

_FAMILIES: tuple[tuple[str, _Family], ...] = (
    ("Row-wise", lambda graph, constructor, target: Rowwise(graph, constructor, target).structures()),
    ("Total", lambda graph, constructor, target: Everything(graph, constructor, target).structures()),
    ("Column-wise", lambda graph, constructor, target: Columnwise(graph, constructor, target).structures()),
    ("Matmul", lambda graph, constructor, target: Matmul(graph, constructor, target).structures()),
    ("Attention", lambda graph, constructor, target: Attention(graph, constructor, target).structures()),
    ("Pooling", lambda graph, constructor, target: Pooling(graph, constructor, target).structures()),
    ("Elementwise", lambda graph, constructor, target: Elementwise(graph, constructor, target).structures()),
)


def structures(
    task_source: str, overrides: Mapping[str, object], arch: str, dtype: str | None = None
) -> tuple[list[Structure], list[str]]:
    """The structures of our own templates that fit a task, and why families do not fit.

    Args:
        task_source: A module in the KernelBench format.
        overrides: Module constants of the form that is timed.
        arch: The target, as `sm_90`.
        dtype: What floating inputs and weights are cast to; None keeps the task's own.

    Returns:
        Structures, the most promising of each family first, and one sentence for each useful reason.
    """
    try:
        graph = read(task_source, overrides, dtype)
        constructor = Constructor(task_source)
    except Mismatch as mismatch:
        return [], [str(mismatch)]
    found: list[Structure] = []
    reasons: list[str] = []
    for name, family in _FAMILIES:
        try:
            made = family(graph, constructor, Target.of(arch))
            for structure in made:
                structure.render(structure.defaults)
            found += made
        except Unrelated:
            continue
        except Mismatch as mismatch:
            reasons.append(f"{name} templates do not fit: {mismatch}")
    if not found and not reasons:
        reasons.append(f"No single template covers a graph of {fused(graph.values())}.")
    return found, [] if found else reasons
