"""What a policy answers, and the generator that it draws from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from engine.records import Step
from engine.search.snapshot import Snapshot
from engine.settings import PolicySettings


@dataclass(frozen=True, slots=True)
class Choice:
    """Where to expand (`ROOT` or a candidate's number), by which step, and the terms that led there.

    `context` holds the candidates that the proposer is to see besides the parent, most telling first; None
    leaves the context to what is usual for the step.
    """

    parent: int
    step: Step
    why: Mapping[str, Any]
    context: tuple[int, ...] | None = None


Policy = Callable[[Snapshot, PolicySettings, Random], Choice | None]
"""Picks the next expansion, or None when nothing can be expanded now: a pure function of what it is given."""


def generator(seed: int, expansion: int | str) -> Random:
    """The generator of one expansion: the same seed and number give the same draws after any interruption."""
    return Random(f"kernelgrove:{seed}:{expansion}")


def structural_at_root(snapshot: Snapshot, why: str, context: tuple[int, ...] | None = ()) -> Choice | None:
    """A new structure where the tree begins, if one may still be asked for; by default from the task alone."""
    if Step.STRUCTURAL not in snapshot.steps_left(snapshot.origin):
        return None
    return Choice(snapshot.origin, Step.STRUCTURAL, {"step": why}, context)
