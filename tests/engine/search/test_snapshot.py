"""The picture of the tree: what takes part, what is counted, and that changes give what a new picture gives."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from engine.records import Candidate, CandidateState, Step, Verdict
from engine.search.snapshot import ROOT, Snapshot, take_snapshot
from tests.engine.search.trees import candidate, candidates, changed, exhaustions


def taking_part(tree: list[Candidate]) -> set[int]:
    """The slow way: judged or open, not pruned, and so for all above."""
    found: set[int] = set()
    for each in tree:
        judged = each.state is CandidateState.EVALUATED and each.reward is not None
        if (judged or not each.state.final) and not each.pruned and (each.parent is None or each.parent in found):
            found.add(each.number)
    return found


def below(snapshot: Snapshot, number: int) -> set[int]:
    """A node's subtree, without the root."""
    found = set() if number == ROOT else {number}
    for child in snapshot.children.get(number, ()):
        found |= below(snapshot, child)
    return found


@given(candidates(), exhaustions)
def test_visits_count_the_subtree_and_pruned_ones_are_not_in_it(
    tree: list[Candidate], exhausted: frozenset[tuple[int, Step]]
) -> None:
    snapshot = take_snapshot(tree, exhausted)
    assert set(snapshot.nodes) == taking_part(tree)
    for number in (ROOT, *snapshot.nodes):
        members = below(snapshot, number)
        rewards = [snapshot.nodes[member].reward or 0.0 for member in members]
        statistics = snapshot.statistics[number]
        assert statistics.visits == len(members)
        assert abs(statistics.total - sum(rewards)) < 1e-9
        assert statistics.best == max(rewards, default=0.0)
        ready = [member for member in {number, *members} if snapshot.steps_left(member)]
        assert statistics.growing == len(ready)


@given(candidates(), exhaustions, st.integers(0, 2**32), st.integers(1, 12))
def test_a_picture_after_changes_is_the_picture_of_the_changed_tree(
    tree: list[Candidate], exhausted: frozenset[tuple[int, Step]], seed: int, times: int
) -> None:
    random = Random(seed)
    snapshot = take_snapshot(tree, exhausted)
    for _ in range(times):
        before, tree = tree, changed(random, tree)
        new = [each for each in tree if each not in before]
        exhausted |= {(random.randrange(0, len(tree) + 1), random.choice(list(Step)))}
        snapshot = snapshot.after(new, exhausted, asked=len(tree))
    assert snapshot == take_snapshot(tree, exhausted)


@given(candidates(), st.integers(0, 2**32))
def test_taking_a_subtree_out_and_handing_it_back_changes_nothing(tree: list[Candidate], seed: int) -> None:
    whole = take_snapshot(tree)
    if not whole.nodes:
        return
    number = Random(seed).choice(sorted(whole.nodes))
    members = below(whole, number)
    gone = [Candidate(1, c.number, c.parent, c.step, c.proposer, c.state, "", 1, pruned=True) for c in tree]
    without = whole.after([each for each in gone if each.number == number])
    assert set(without.nodes) == set(whole.nodes) - members
    assert without.after([each for each in tree if each.number in members]) == whole


@given(candidates())
def test_components_are_structures_with_their_edits(tree: list[Candidate]) -> None:
    snapshot = take_snapshot(tree)
    for number, node in snapshot.nodes.items():
        root = snapshot.component_of[number]
        assert number in snapshot.components[root].members
        assert root == (number if node.step is Step.STRUCTURAL else snapshot.component_of[node.parent])
    for component in snapshot.components.values():
        correct = [snapshot.nodes[n] for n in component.members if snapshot.nodes[n].correct]
        if component.best is None:
            assert not correct
        else:
            assert snapshot.nodes[component.best].speedup == max(node.speedup or 0.0 for node in correct)


def test_a_component_counts_what_was_judged_since_it_improved_clearly() -> None:
    tree = [
        candidate(1, speedup=1.0, step=Step.STRUCTURAL),
        candidate(2, 1, speedup=1.5),
        candidate(3, 2, speedup=1.507),
        candidate(4, 2, 0.05, verdict=Verdict.INCORRECT),
        candidate(5, 2, None, state=CandidateState.QUEUED),
    ]
    component = take_snapshot(tree).components[1]
    assert (component.members, component.best, component.judged, component.since_best) == ((1, 2, 3, 4, 5), 3, 4, 2)


def test_a_tree_that_starts_from_a_persons_kernel_does_not_grow_at_the_root() -> None:
    start = candidate(1, step=Step.STRUCTURAL)
    opened = candidate(1, value=None, step=Step.STRUCTURAL, state=CandidateState.QUEUED)
    pruned = candidate(1, step=Step.STRUCTURAL, pruned=True)
    assert not take_snapshot([opened], start=1).can_grow(ROOT), "nothing grows before it is judged"
    snapshot = take_snapshot([start], start=1)
    assert (snapshot.origin, snapshot.steps_left(ROOT)) == (1, ())
    without = take_snapshot([pruned], start=1)
    assert (without.origin, without.steps_left(ROOT)) == (ROOT, (Step.STRUCTURAL,))
