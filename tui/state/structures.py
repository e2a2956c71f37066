"""The structures that a search has tried: each with its refinements, and how far it came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.ends import bound_share
from engine.records import Candidate, CandidateState, Step, Verdict


@dataclass(frozen=True, slots=True)
class TriedStructure:
    """A structural candidate with the edits that grew from it.

    `members` counts all of them, `correct` those found right; `speedup` is the best one's, `bound` its share of the
    speed of light.
    """

    number: int
    idea: str
    members: int
    judged: int
    correct: int
    best: int | None
    speedup: float | None
    bound: float | None
    novelty: float | None


def tried_structures(candidates: Iterable[Candidate], facts: Mapping[str, Any]) -> list[TriedStructure]:
    """The structures among a run's candidates, the fastest first; what was pruned or never made is left out."""
    root_of: dict[int, int] = {}
    members: dict[int, list[Candidate]] = {}
    for candidate in sorted(candidates, key=lambda candidate: candidate.number):
        gone = candidate.state in (CandidateState.REJECTED, CandidateState.ABANDONED, CandidateState.FAILED)
        if candidate.pruned or gone:
            continue
        own = candidate.step is Step.STRUCTURAL or candidate.parent not in root_of
        root = candidate.number if own else root_of[candidate.parent or 0]
        root_of[candidate.number] = root
        members.setdefault(root, []).append(candidate)
    tried = [_tried(group, facts) for group in members.values()]
    return sorted(tried, key=lambda structure: (-(structure.speedup or 0.0), structure.number))


def _tried(group: list[Candidate], facts: Mapping[str, Any]) -> TriedStructure:
    correct = [candidate for candidate in group if candidate.verdict is Verdict.CORRECT]
    best = max(correct, key=lambda candidate: (candidate.speedup or 0.0, -candidate.number), default=None)
    speedup = best.speedup if best is not None else None
    return TriedStructure(
        number=group[0].number,
        idea=group[0].idea,
        members=len(group),
        judged=sum(candidate.verdict is not None for candidate in group),
        correct=len(correct),
        best=best.number if best is not None else None,
        speedup=speedup,
        bound=bound_share(speedup, facts),
        novelty=group[0].novelty,
    )
