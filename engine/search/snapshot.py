"""An immutable picture of the tree, from which a policy decides.

A run of ten thousand candidates takes a new picture for each expansion, so a picture is made from the one
before: what did not change is shared, and only the changed nodes and those above them are worked out anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field

from engine.records import Candidate, CandidateState, ProposerKind, Step, Verdict
from engine.settings import PolicySettings

ROOT = 0
"""The number that stands for the root in a snapshot: the task with no kernel."""

ALL_STEPS = frozenset(Step)
_STEPS = tuple(Step)

CLEARLY_FASTER = 1.01
"""How much faster a candidate must be for its component to count as improved; less may be noise."""

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
    novelty: float | None = None


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a subtree has brought: number of visits, sum and maximum of their rewards.

    Open work counts as a visit without reward (virtual loss). `growing` counts the nodes of the subtree that
    can be expanded now; open nodes grow once they are judged.
    """

    visits: int = 0
    total: float = 0.0
    best: float = 0.0
    growing: int = 0

    @property
    def mean(self) -> float:
        """The average reward, 0 without visits."""
        return self.total / self.visits if self.visits else 0.0


@dataclass(frozen=True, slots=True)
class Component:
    """A structure with its refinements: a structural node and what is reached from it by local steps.

    `members` are numbers in rising order; `best` is the fastest correct one; `since_best` counts the members
    judged since the last clear improvement.
    """

    members: tuple[int, ...]
    best: int | None
    judged: int
    since_best: int


@dataclass(frozen=True)
class Snapshot:
    """The nodes that take part in the search, and the steps for which nothing is left to offer.

    Pruned candidates and those that never got a verdict are left out, with everything below them. `steps`
    are those that the run may take; the root takes one structural step in any case. `asked` counts the
    proposals that were asked for, whatever came of them. `start` is the number of the person's own kernel that
    the search starts from: while it takes part nothing grows at the root.
    """

    nodes: Mapping[int, Node] = field(default_factory=dict)
    exhausted: frozenset[tuple[int, Step]] = frozenset()
    steps: frozenset[Step] = ALL_STEPS
    asked: int = 0
    start: int | None = None
    children: Mapping[int, tuple[int, ...]] = field(default_factory=lambda: {ROOT: ()})
    statistics: Mapping[int, Statistics] = field(default_factory=lambda: {ROOT: Statistics(growing=1)})
    components: Mapping[int, Component] = field(default_factory=dict)
    component_of: Mapping[int, int] = field(default_factory=dict)

    @property
    def origin(self) -> int:
        """Where the tree begins: the person's own kernel where there is one, else the root."""
        return self.start if self.start in self.nodes and self.start is not None else ROOT

    def steps_left(self, number: int) -> tuple[Step, ...]:
        """The steps that may still be asked for at a node; none while its own verdict is open."""
        if number == ROOT:
            refused = self.origin != ROOT or (Step.STRUCTURAL not in self.steps and self.children[ROOT])
            return () if refused or (ROOT, Step.STRUCTURAL) in self.exhausted else (Step.STRUCTURAL,)
        if self.nodes[number].open:
            return ()
        return tuple(step for step in _STEPS if self.has_left(number, step))

    def has_left(self, number: int, step: Step) -> bool:
        """Whether a step may still be asked for at a judged node."""
        return step in self.steps and (number, step) not in self.exhausted

    def can_grow(self, number: int) -> bool:
        """Whether something can be expanded now in the subtree of a node."""
        return self.statistics[number].growing > 0

    def local_children(self, number: int) -> tuple[int, ...]:
        """The children of a node that are edits of it."""
        return tuple(child for child in self.children.get(number, ()) if self.nodes[child].step is Step.LOCAL)

    def after(
        self, changed: Iterable[Candidate], exhausted: Collection[tuple[int, Step]] = (), asked: int | None = None
    ) -> Snapshot:
        """The picture after some candidates have changed and more steps turned out to be exhausted.

        A candidate that leaves takes along what grew from it. One that comes back does not bring that along:
        hand over its whole subtree.
        """
        return _Change(self).make(changed, exhausted, self.asked if asked is None else asked)


def take_snapshot(
    candidates: Collection[Candidate],
    exhausted: Collection[tuple[int, Step]] = (),
    steps: Set[Step] = ALL_STEPS,
    start: int | None = None,
) -> Snapshot:
    """Makes the policy's picture of a whole run."""
    asked = sum(candidate.proposer is not ProposerKind.HUMAN for candidate in candidates)
    return Snapshot(steps=frozenset(steps), start=start).after(candidates, exhausted, asked)


def allowed_steps(settings: PolicySettings) -> frozenset[Step]:
    """The steps that a run may take (the ablation `actions`)."""
    return ALL_STEPS if settings.actions == "both" else frozenset({Step(settings.actions)})


class _Change:
    """Works out one snapshot from another."""

    def __init__(self, before: Snapshot) -> None:
        self._before = before
        self._nodes = dict(before.nodes)
        self._children = dict(before.children)
        self._component_of = dict(before.component_of)
        self._members: dict[int, tuple[int, ...]] = {}
        self._dirty: set[int] = {ROOT}

    def make(self, changed: Iterable[Candidate], exhausted: Collection[tuple[int, Step]], asked: int) -> Snapshot:
        for candidate in sorted(changed, key=lambda candidate: candidate.number):
            self._take_in(candidate)
        news = frozenset(exhausted) - self._before.exhausted
        for number, _ in news:
            self._touch(number)
        after = Snapshot(
            nodes=self._nodes,
            exhausted=self._before.exhausted | news,
            steps=self._before.steps,
            asked=asked,
            start=self._before.start,
            children=self._children,
            statistics=(statistics := dict(self._before.statistics)),
            components=self._components(),
            component_of=self._component_of,
        )
        # A child's number is higher than its parent's: from the highest down, what is below is always known.
        for number in sorted(self._dirty, reverse=True):
            if number == ROOT or number in self._nodes:
                statistics[number] = _statistics(after, number)
            else:
                statistics.pop(number, None)
        return after

    def _take_in(self, candidate: Candidate) -> None:
        number, parent = candidate.number, candidate.parent or ROOT
        node = _node(candidate, parent)
        if node is None or (parent != ROOT and parent not in self._nodes):
            self._remove(number)
            return
        if number not in self._nodes:
            self._children[parent] = _inserted(self._children.get(parent, ()), number)
            root = number if node.step is Step.STRUCTURAL else self._component_of.get(parent, number)
            self._component_of[number] = root
            self._members[root] = _inserted(self._members_of(root), number)
        else:
            root = self._component_of[number]
            self._members[root] = self._members_of(root)
        self._nodes[number] = node
        self._touch(number)

    def _remove(self, number: int) -> None:
        if number not in self._nodes:
            return
        parent = self._nodes[number].parent
        self._children[parent] = tuple(child for child in self._children[parent] if child != number)
        if parent != ROOT and not self._children[parent]:
            del self._children[parent]
        self._touch(number)
        waiting = [number]
        while waiting:
            gone = waiting.pop()
            waiting.extend(self._children.pop(gone, ()))
            del self._nodes[gone]
            root = self._component_of.pop(gone)
            self._members[root] = tuple(member for member in self._members_of(root) if member != gone)
            self._dirty.add(gone)

    def _members_of(self, root: int) -> tuple[int, ...]:
        if root in self._members:
            return self._members[root]
        known = self._before.components.get(root)
        return () if known is None else known.members

    def _touch(self, number: int) -> None:
        """Marks a node and all above it; those above a marked one are marked already."""
        while number not in self._dirty and number in self._nodes:
            self._dirty.add(number)
            number = self._nodes[number].parent

    def _components(self) -> dict[int, Component]:
        components = dict(self._before.components)
        for root, members in self._members.items():
            if members:
                components[root] = _component([self._nodes[member] for member in members])
            else:
                components.pop(root, None)
        return components


def _inserted(numbers: tuple[int, ...], number: int) -> tuple[int, ...]:
    return (*numbers, number) if not numbers or numbers[-1] < number else tuple(sorted((*numbers, number)))


def _node(candidate: Candidate, parent: int) -> Node | None:
    is_open = candidate.state in _OPEN
    takes_part = is_open or (candidate.state is CandidateState.EVALUATED and candidate.reward is not None)
    if candidate.pruned or not takes_part:
        return None
    return Node(
        candidate.number,
        parent,
        candidate.step,
        None if is_open else candidate.reward,
        candidate.verdict is Verdict.CORRECT and not is_open,
        candidate.speedup,
        is_open,
        candidate.novelty,
    )


def _statistics(snapshot: Snapshot, number: int) -> Statistics:
    visits, total, best, growing = 0, 0.0, 0.0, 1 if snapshot.steps_left(number) else 0
    if number != ROOT:
        visits, total = 1, snapshot.nodes[number].reward or 0.0
        best = total
    for child in snapshot.children.get(number, ()):
        below = snapshot.statistics[child]
        visits += below.visits
        total += below.total
        best = max(best, below.best)
        growing += below.growing
    return Statistics(visits, total, best, growing)


def _component(members: list[Node]) -> Component:
    best: Node | None = None
    record = 0.0
    judged = since_best = 0
    for node in members:
        if node.open:
            continue
        judged += 1
        since_best += 1
        if not node.correct:
            continue
        speed = node.speedup or 0.0
        if best is None or speed > (best.speedup or 0.0):
            best = node
        if best is node and (speed > CLEARLY_FASTER * record or judged == 1):
            record, since_best = speed, 0
    return Component(tuple(node.number for node in members), None if best is None else best.number, judged, since_best)
