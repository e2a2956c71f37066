"""An immutable picture of the tree, from which a policy decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from engine.records import Candidate, CandidateState, Step, Verdict

ROOT = 0
"""The number that stands for the root in a snapshot: the task with no kernel."""

_OPEN = (CandidateState.PROPOSING, CandidateState.AWAITING_APPROVAL, CandidateState.QUEUED, CandidateState.EVALUATING)


@dataclass(frozen=True, slots=True)
class Node:
    """One candidate as the policy sees it; `reward` is None while its verdict is open."""

    number: int
    parent: int
    step: Step
    reward: float | None
    correct: bool
    speedup: float | None
    open: bool


@dataclass(frozen=True)
class Snapshot:
    """The nodes that take part in the search, and the steps for which nothing is left to offer.

    Pruned candidates and those that never got a verdict are left out, with everything below them.
    """

    nodes: Mapping[int, Node]
    exhausted: frozenset[tuple[int, Step]]

    @cached_property
    def children(self) -> Mapping[int, tuple[int, ...]]:
        """The children of each node, by number; the root is `ROOT`."""
        lists: dict[int, list[int]] = {ROOT: []}
        for node in self.nodes.values():
            lists.setdefault(node.parent, []).append(node.number)
        return {number: tuple(sorted(members)) for number, members in lists.items()}

    @cached_property
    def statistics(self) -> Mapping[int, Statistics]:
        """Visits and rewards of each node's subtree; open work counts as a visit without reward (virtual loss)."""
        totals: dict[int, Statistics] = {}
        for number in sorted(self.nodes, reverse=True):
            node = self.nodes[number]
            own = Statistics(1, node.reward or 0.0, node.reward if node.reward is not None else 0.0)
            totals[number] = own.plus(totals[child] for child in self.children.get(number, ()))
        totals[ROOT] = Statistics(0, 0.0, 0.0).plus(totals[child] for child in self.children[ROOT])
        return totals

    @cached_property
    def growable(self) -> frozenset[int]:
        """The nodes in whose subtree something can be expanded now; open nodes grow once they are judged."""
        growable: set[int] = set()
        for number in [*sorted(self.nodes, reverse=True), ROOT]:
            if self.steps_left(number) or any(child in growable for child in self.children.get(number, ())):
                growable.add(number)
        return frozenset(growable)

    def steps_left(self, number: int) -> tuple[Step, ...]:
        """The steps that may still be asked for at a node; none while its own verdict is open."""
        if number == ROOT:
            return () if (ROOT, Step.STRUCTURAL) in self.exhausted else (Step.STRUCTURAL,)
        if self.nodes[number].open:
            return ()
        return tuple(step for step in Step if (number, step) not in self.exhausted)


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a subtree has brought: number of visits, sum and maximum of their rewards."""

    visits: int
    total: float
    best: float

    @property
    def mean(self) -> float:
        """The average reward, 0 without visits."""
        return self.total / self.visits if self.visits else 0.0

    def plus(self, others: Iterable[Statistics]) -> Statistics:
        """These statistics together with others."""
        visits, total, best = self.visits, self.total, self.best
        for other in others:
            visits, total, best = visits + other.visits, total + other.total, max(best, other.best)
        return Statistics(visits, total, best)


def take_snapshot(candidates: Iterable[Candidate], exhausted: Iterable[tuple[int, Step]]) -> Snapshot:
    """Makes the policy's picture of a run; candidates come in the order of their numbers."""
    nodes: dict[int, Node] = {}
    for candidate in candidates:
        parent = candidate.parent or ROOT
        is_open = candidate.state in _OPEN
        takes_part = is_open or (candidate.state is CandidateState.EVALUATED and candidate.reward is not None)
        if candidate.pruned or not takes_part or (parent != ROOT and parent not in nodes):
            continue
        nodes[candidate.number] = Node(
            candidate.number,
            parent,
            candidate.step,
            None if is_open else candidate.reward,
            candidate.verdict is Verdict.CORRECT,
            candidate.speedup,
            is_open,
        )
    return Snapshot(nodes, frozenset(exhausted))
