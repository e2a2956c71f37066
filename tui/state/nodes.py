"""The tree's parts: a candidate in its place, a visible row, and what an update changed."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.records import Candidate


@dataclass(slots=True)
class Node:
    """A candidate in its place. `best` is the highest speedup in its subtree, itself included."""

    candidate: Candidate
    children: list[int] = field(default_factory=list)
    folded: bool = False
    best: float | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """What an update did to the rows.

    `inserted` holds the row indices of new rows in the order of insertion; `repaint_from` is the first
    row whose place or guides changed; `changed` the candidates whose own row may look different.
    """

    inserted: tuple[int, ...] = ()
    repaint_from: int | None = None
    changed: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class TreeRow:
    """One visible row. `last` tells for each level above, outermost first, whether its branch has ended.

    Only the innermost levels are told; `hidden_levels` counts those left out.
    """

    candidate: Candidate
    last: tuple[bool, ...]
    hidden_levels: int
    has_children: bool
    folded: bool
    best_below: float | None
    matches: bool
