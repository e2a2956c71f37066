"""What a proposer is shown: pure functions of the tree, in which what is pruned does not exist."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from engine.records import Candidate, CandidateState, ProposerKind, Step, Verdict
from engine.search.context import best_of_components, choose_context, local_context, structural_context
from engine.search.snapshot import ROOT, Snapshot, take_snapshot

S, L = Step.STRUCTURAL, Step.LOCAL


def candidate(
    number: int, parent: int | None, step: Step, speedup: float | None = None, *, pruned: bool = False
) -> Candidate:
    return Candidate(
        1, number, parent, step, ProposerKind.LLM, CandidateState.EVALUATED, "", 1, reward=0.5, speedup=speedup,
        pruned=pruned, verdict=Verdict.CORRECT if speedup is not None else Verdict.INCORRECT,
    )  # fmt: skip


def tree(*candidates: Candidate) -> Snapshot:
    return take_snapshot(candidates, set())


GROVE = tree(
    candidate(1, None, S, 1.0),
    candidate(2, 1, L, 1.5),
    candidate(3, 2, L),
    candidate(4, 2, S, 0.8),
    candidate(5, 4, L),
    candidate(6, 5, L),
    candidate(7, None, S),
    candidate(8, None, S, 3.0),
)


def test_a_local_step_is_shown_the_chain_to_its_structure_oldest_first() -> None:
    assert local_context(GROVE, 6).numbers == (4, 5, 6)
    assert local_context(GROVE, 1).numbers == (1,)
    long = tree(candidate(1, None, S), *(candidate(number, number - 1, L) for number in range(2, 10)))
    assert local_context(long, 9).numbers == (5, 6, 7, 8, 9)
    assert "the last 5 of 9" in local_context(long, 9).reason


def test_each_structure_is_stood_for_by_the_fastest_correct_kernel_grown_from_it() -> None:
    assert best_of_components(GROVE) == {1: 2, 4: 4, 8: 8}


def test_a_structural_step_is_shown_the_best_of_each_structure_above_and_some_others() -> None:
    drawn = [structural_context(GROVE, 6, 5, Random(seed)).numbers for seed in range(200)]
    assert all(numbers[:2] == (2, 4) for numbers in drawn)
    assert {numbers[2:] for numbers in drawn} == {(), (8,)}


def test_at_the_root_the_pool_is_drawn_by_speedup() -> None:
    wide = tree(*(candidate(number, None, S, float(number)) for number in range(1, 9)))
    firsts = Counter(
        numbers[0]
        for seed in range(400)
        if (numbers := structural_context(wide, ROOT, 5, Random(seed)).numbers)
    )  # fmt: skip
    assert firsts.most_common(1)[0][0] == 8
    assert firsts[8] > firsts[7] > firsts[5]
    assert max(len(structural_context(wide, ROOT, 5, Random(seed)).numbers) for seed in range(400)) == 5


def test_more_structures_above_than_the_pool_holds_are_sampled_down_in_order() -> None:
    deep = tree(*(candidate(number, number - 1 or None, S, 1.0) for number in range(1, 10)))
    pools = {structural_context(deep, 9, 3, Random(seed)).numbers for seed in range(50)}
    assert all(len(pool) == 3 and list(pool) == sorted(pool) for pool in pools)
    assert len(pools) > 1


@st.composite
def snapshots(draw: st.DrawFn) -> tuple[list[Candidate], Snapshot]:
    candidates: list[Candidate] = []
    for number in range(1, draw(st.integers(1, 30)) + 1):
        parent = draw(st.integers(0, number - 1)) or None
        step = draw(st.sampled_from(Step)) if parent else S
        above = candidates[parent - 1] if parent else None
        pruned = (above is not None and above.pruned) or draw(st.integers(0, 9)) == 0
        speedup = draw(st.none() | st.floats(0.01, 50.0))
        candidates.append(candidate(number, parent, step, speedup, pruned=pruned))
    return candidates, tree(*candidates)


@given(snapshots(), st.integers(1, 6), st.integers(0, 10**6))
def test_no_pruned_candidate_is_shown_and_the_choice_is_a_function_of_tree_and_generator(
    drawn: tuple[list[Candidate], Snapshot], pool: int, seed: int
) -> None:
    candidates, snapshot = drawn
    for parent in [ROOT, *snapshot.nodes]:
        for step in Step if parent != ROOT else (S,):
            context = choose_context(snapshot, parent, step, pool, Random(seed))
            assert not [number for number in context.numbers if candidates[number - 1].pruned]
            assert len(set(context.numbers)) == len(context.numbers) <= (5 if step is L else pool)
            if step is S:
                assert all(snapshot.nodes[number].correct for number in context.numbers)
            else:
                assert context.numbers[-1] == parent
            assert context == choose_context(snapshot, parent, step, pool, Random(seed))
