"""Reductions shared by several programs: what they leave in memory and how a second kernel joins it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import torch

from engine.lowering.templates.body import Body
from engine.lowering.templates.graph import Graph, Value
from engine.lowering.templates.operands import Index, Operands
from engine.lowering.templates.pointwise import TYPE_NAMES, computed_type
from engine.lowering.templates.summary import fused
from engine.lowering.templates.writing import Kernel

IDENTITY = {"sum": 0.0, "max": -math.inf, "min": math.inf}
"""The number that changes nothing in a reduction of each kind."""
IDENTITY_TEXT = {"sum": "0.0", "max": "float('-inf')", "min": "float('inf')"}
_COMBINE = {"sum": "{0} + {1}", "max": "tl.maximum({0}, {1})", "min": "tl.minimum({0}, {1})"}


def combined(kind: str, running: str, text: str) -> str:
    """The statement that takes one more operand into a running reduction."""
    if kind == "sum":
        return f"{running} += {text}"
    return f"{running} = {_COMBINE[kind].format(running, text)}"


def start_text(value: Value, shape: str) -> str:
    """The expression with which a running reduction of that shape begins."""
    dtype = TYPE_NAMES[computed_type(value.dtype)]
    kind = str(value.settings["kind"])
    if kind == "sum":
        return f"tl.zeros([{shape}], {dtype})"
    return f"tl.full([{shape}], {IDENTITY_TEXT[kind]}, {dtype})"


def partial_dtype(value: Value) -> str:
    """Host text of the dtype of a buffer that holds parts of a reduction."""
    return str(computed_type(value.dtype))


def linear_in(graph: Graph, reductions: Sequence[Value]) -> bool:
    """Whether every output is a float32 sum times a constant, so that programs may add to it in any order."""
    for output in graph.outputs:
        value = output.value
        while value not in reductions:
            if value.op == "reshape":
                value = value.inputs[0]
                continue
            others = [source for source in value.inputs if source.op not in ("constant", "count")]
            divided_by = value.op == "div" and value.inputs[0] in others
            if len(others) != 1 or not (value.op in ("mul", "neg") or divided_by):
                return False
            value = others[0]
        if value.settings["kind"] != "sum" or output.dtype is not torch.float32:
            return False
    return True


def add_parts_kernel(
    operands: Operands,
    reductions: Sequence[Value],
    parts: Sequence[str],
    split: int,
    sizes: Mapping[str, str],
    counts: Mapping[Value, str],
) -> Kernel:
    """The kernel that joins `split` parts of each reduction, element by element, and computes what follows.

    Host code must define `count`, how many elements each part has, and `columns`, along which operands
    of what follows lie.
    """
    body = Body(operands.kernel_names(), operands.scope())
    for value, text in counts.items():
        body.know(value, text)
    body.line("start = tl.program_id(0).to(tl.int64) * BLOCK")
    body.line("place = start + tl.arange(0, BLOCK)")
    body.line("inside = place < count")
    running: dict[Value, str] = {}
    for value in reductions:
        running[value] = body.fresh("running")
        body.line(f"{running[value]} = {start_text(value, 'BLOCK')}")
    body.line("for part in tl.static_range(SPLIT):")
    body.deeper()
    for value, name in zip(reductions, parts, strict=True):
        kind = str(value.settings["kind"])
        other = IDENTITY_TEXT[kind] if value.dtype.is_floating_point else "0"
        load = f"tl.load({name}_ptr + tl.cast(count, tl.int64) * part + place, mask=inside, other={other})"
        body.line(combined(kind, running[value], load))
    body.deeper(-1)
    for value in reductions:
        body.know(value, running[value])
    values = operands.graph.values()
    behind = set(_needed([output.value for output in operands.graph.outputs], {*reductions, *counts}))
    tail = [value for value in values if value in behind and value not in reductions]
    index = Index(row="place", column="place % columns", row_mask="inside", column_mask="inside")
    for value in tail:
        if value.op == "input":
            body.define(value, operands.load(value, index), operands.inputs[value].name)
    for place, output in enumerate(operands.graph.outputs):
        body.compute([output.value])
        body.line(f"tl.store({operands.output_names[place]}_ptr + place, {body.short(output.value)}, mask=inside)")
    arguments = {f"{name}_ptr": name for name in parts} | operands.pointers(tail)
    arguments |= {f"{name}_ptr": name for name in operands.output_names}
    arguments |= {"count": "count", "columns": "columns", **sizes, **operands.numbers(tail)}
    words = set(re.findall(r"\w+", "\n".join(body.lines)))
    arguments = {name: text for name, text in arguments.items() if name in words}
    rest = [value for value in tail if value.op not in ("input", "constant", "count", "reshape")]
    comment = f"Joins the parts of each result{f', then fuses {fused(rest)}' if rest else ''}."
    meta = {"SPLIT": str(split), "BLOCK": "256"}
    return Kernel("join_parts", comment, "(triton.cdiv(count, 256),)", arguments, meta, {"num_warps": 4}, body.lines)


def finish_kernel(
    operands: Operands, totals: Sequence[Value], partials: Sequence[str], counts: Mapping[Value, str]
) -> Kernel:
    """The kernel that joins what `programs` programs left of each total, and computes what follows.

    Host code must define `programs`, and `rows`, `columns` where means divide by them.
    """
    body = Body(operands.kernel_names(), operands.scope())
    for value, text in counts.items():
        body.know(value, text)
    for place, total in enumerate(totals):
        body.line(f"running_{place + 1} = {start_text(total, 'BLOCK')}")
    body.line("for start in range(0, programs, BLOCK):")
    body.deeper()
    body.line("place = start + tl.arange(0, BLOCK)")
    for number, (partial, total) in enumerate(zip(partials, totals, strict=True)):
        kind = str(total.settings["kind"])
        other = IDENTITY_TEXT[kind] if total.dtype.is_floating_point else "0"
        load = f"tl.load({partial}_ptr + place, mask=place < programs, other={other})"
        body.line(combined(kind, f"running_{number + 1}", load))
    body.deeper(-1)
    for place, total in enumerate(totals):
        body.define(total, f"tl.{total.settings['kind']}(running_{place + 1}, axis=0)", total.label or "total")
    outputs: dict[str, str] = {}
    done: list[Value] = []
    for output, name in zip(operands.graph.outputs, operands.output_names, strict=True):
        needed = _needed([output.value], {*totals, *counts})
        if not set(needed).intersection(totals):
            continue
        for value in needed:
            if value.op == "input" and value not in body.texts:
                body.define(value, operands.load(value, Index()), operands.inputs[value].name)
        body.compute([output.value])
        body.line(f"tl.store({name}_ptr, {body.short(output.value)})")
        outputs[f"{name}_ptr"] = name
        done += [value for value in needed if value not in done]
    arguments = {f"{name}_ptr": name for name in partials} | operands.pointers(done) | outputs
    arguments |= {"programs": "programs", "rows": "rows", "columns": "columns", "count": "count"}
    arguments |= operands.numbers(done)
    words = set(re.findall(r"\w+", "\n".join(body.lines)))
    arguments = {name: text for name, text in arguments.items() if name in words}
    comment = f"Fuses {fused(done)} of what the programs of the first kernel left."
    return Kernel("finish", comment, "(1,)", arguments, {"BLOCK": "1024"}, {"num_warps": 4}, body.lines)


def _needed(wanted: Sequence[Value], known: set[Value]) -> list[Value]:
    found: dict[Value, None] = {}

    def visit(value: Value) -> None:
        if value in found:
            return
        if value not in known:
            for source in value.inputs:
                visit(source)
        found[value] = None

    for value in wanted:
        visit(value)
    return list(found)
