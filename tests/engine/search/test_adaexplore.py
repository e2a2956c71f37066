"""The tree policy: which arm wins, by which numbers, and that it is a pure function."""

from __future__ import annotations

import math
from random import Random

import pytest

from engine.records import Candidate, CandidateState, Step, Verdict
from engine.search.choice import generator
from engine.search.policies.adaexplore import choose
from engine.search.reward import reward
from engine.search.snapshot import ROOT, Snapshot, take_snapshot
from engine.settings import PAPER_POLICY, PolicySettings
from tests.engine.search.trees import candidate

PAPER = PAPER_POLICY


def snapshot(*candidates: Candidate, exhausted: set[tuple[int, Step]] | None = None) -> Snapshot:
    return take_snapshot(candidates, exhausted or set())


class Fixed(Random):
    """Draws the same number always."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def random(self) -> float:
        return self.value


def test_an_empty_tree_grows_a_structure_at_the_root() -> None:
    choice = choose(snapshot(), PAPER, Fixed(0.99))
    assert choice is not None
    assert (choice.parent, choice.step) == (ROOT, Step.STRUCTURAL)


def test_a_child_without_children_of_its_own_is_refined_when_it_wins() -> None:
    choice = choose(snapshot(candidate(1, value=1.0, step=Step.STRUCTURAL)), PAPER, Fixed(0.5))
    assert choice is not None
    # One visit: ln 1 = 0, so child and expansion tie at 1.0; the published code then descends.
    assert (choice.parent, choice.step) == (1, Step.LOCAL)


def test_the_terms_are_those_of_the_formula() -> None:
    tree = snapshot(
        candidate(1, value=1.0, step=Step.STRUCTURAL),
        candidate(2, value=0.4, step=Step.STRUCTURAL),
        candidate(3, 1, 1.2),
    )
    choice = choose(tree, PAPER, Fixed(0.5))
    assert choice is not None
    arms = {arm["arm"]: arm for arm in choice.why["path"][0]["arms"]}
    assert arms[1]["value"] == pytest.approx(1.1)
    assert arms[1]["bonus"] == pytest.approx(0.3 * math.sqrt(math.log(3) / 2))
    assert arms[2]["bonus"] == pytest.approx(0.3 * math.sqrt(math.log(3) / 1))
    assert arms[None]["value"] == pytest.approx(1.1)
    assert arms[None]["bonus"] == pytest.approx(0.3 * math.sqrt(math.log(3) / 4))
    # One level down, child and expansion tie; the tree deepens.
    assert choice.parent == 3


def test_max_weight_blends_the_best_with_the_mean() -> None:
    tree = snapshot(candidate(1, value=1.0, step=Step.STRUCTURAL), candidate(2, 1, 0.5), candidate(3, value=0.4))
    choice = choose(tree, PolicySettings(max_weight=0.5, owed_refinements=0), Fixed(0.5))
    assert choice is not None
    arms = {arm["arm"]: arm for arm in choice.why["path"][0]["arms"]}
    assert arms[1]["value"] == pytest.approx(0.5 * 1.0 + 0.5 * 0.75)


def test_a_node_with_two_local_children_gets_a_structural_one() -> None:
    tree = snapshot(
        candidate(1, value=1.6, step=Step.STRUCTURAL), candidate(2, 1, 0.05), candidate(3, 1, 0.05),
        *(candidate(number, 2 + number % 2, 0.05) for number in range(4, 12)),
        exhausted={(ROOT, Step.STRUCTURAL)},
    )  # fmt: skip
    choice = choose(tree, PAPER, Fixed(0.99))
    assert choice is not None
    # With 2 children of 5 visits each, 2^2 < 5: expanding 1 wins.
    assert (choice.parent, choice.step) == (1, Step.STRUCTURAL)


@pytest.mark.parametrize(("drawn", "step"), [(0.19, Step.STRUCTURAL), (0.21, Step.LOCAL)])
def test_elsewhere_chance_decides_with_probability_a_fifth(drawn: float, step: Step) -> None:
    tree = snapshot(candidate(1, value=1.0, step=Step.STRUCTURAL), exhausted={(ROOT, Step.STRUCTURAL)})
    choice = choose(tree, PAPER, Fixed(drawn))
    assert choice is not None
    assert (choice.parent, choice.step) == (1, step)


def test_what_is_exhausted_is_not_chosen_and_nothing_left_says_so() -> None:
    root_done = {(ROOT, Step.STRUCTURAL)}
    tree = [candidate(1, step=Step.STRUCTURAL)]
    only_structural = choose(snapshot(*tree, exhausted=root_done | {(1, Step.LOCAL)}), PAPER, Fixed(0.9))
    assert only_structural is not None
    assert only_structural.step is Step.STRUCTURAL
    done = root_done | {(1, Step.LOCAL), (1, Step.STRUCTURAL)}
    assert choose(snapshot(*tree, exhausted=done), PAPER, Fixed(0.9)) is None


def test_pruned_and_failed_candidates_and_what_grew_from_them_leave_selection_and_statistics() -> None:
    tree = snapshot(
        candidate(1, value=1.6, step=Step.STRUCTURAL, pruned=True),
        candidate(2, 1, 1.6),
        candidate(3, None, None, step=Step.STRUCTURAL, state=CandidateState.FAILED),
        candidate(4, value=0.4, step=Step.STRUCTURAL),
    )
    assert set(tree.nodes) == {4}
    assert tree.statistics[ROOT].visits == 1


def test_open_work_counts_as_a_visit_without_reward_and_is_not_expanded() -> None:
    tree = snapshot(
        candidate(1, value=1.0, step=Step.STRUCTURAL),
        candidate(2, 1, None, state=CandidateState.EVALUATING),
        exhausted={(ROOT, Step.STRUCTURAL)},
    )
    assert tree.statistics[1].visits == 2
    assert tree.statistics[1].mean == 0.5
    choice = choose(tree, PAPER, Fixed(0.5))
    assert choice is not None
    assert choice.parent == 1


def test_visits_equal_the_judged_descendants_in_a_large_random_tree() -> None:
    random = Random(7)
    candidates = [candidate(1, step=Step.STRUCTURAL)]
    for number in range(2, 400):
        candidates.append(candidate(number, random.randrange(1, number), random.random()))
    tree = snapshot(*candidates)
    below: dict[int, int] = {}
    for node in sorted(tree.nodes, reverse=True):
        below[node] = 1 + sum(below[child] for child in tree.children.get(node, ()))
    assert {number: tree.statistics[number].visits for number in tree.nodes} == below


def test_a_chain_far_deeper_than_the_recursion_limit_is_handled() -> None:
    chain = [candidate(number, number - 1 or None) for number in range(1, 5001)]
    assert choose(snapshot(*chain), PAPER, Random(1)) is not None


def test_the_same_snapshot_and_generator_give_the_same_choice() -> None:
    tree = snapshot(candidate(1, step=Step.STRUCTURAL), candidate(2, 1, 0.7), candidate(3, value=0.9))
    choices = {str(choose(tree, PAPER, generator(5, 4))) for _ in range(5)}
    assert len(choices) == 1


@pytest.mark.parametrize(
    ("verdict", "speedup", "kind", "expected"),
    [
        (Verdict.COMPILE_ERROR, None, "paper", 0.0),
        (Verdict.TAMPERED, 5.0, "paper", 0.0),
        (Verdict.INCORRECT, None, "paper", 0.05),
        (Verdict.TIMEOUT, None, "log", 0.05),
        (Verdict.INFRASTRUCTURE_ERROR, None, "log", None),
        (Verdict.CORRECT, 0.1, "paper", 0.4),
        (Verdict.CORRECT, 10.0, "paper", 1.6),
        (Verdict.CORRECT, 50.0, "paper", 1.6),
        (Verdict.CORRECT, 5.05, "paper", 1.0),
        (Verdict.CORRECT, 0.01, "log", 0.4),
        (Verdict.CORRECT, 20.0, "log", 1.6),
        (Verdict.CORRECT, math.sqrt(0.1 * 20), "log", 1.0),
    ],
)
def test_rewards(verdict: Verdict, speedup: float | None, kind: str, expected: float | None) -> None:
    assert reward(verdict, speedup, 20.0, kind) == (None if expected is None else pytest.approx(expected))


def test_a_bound_close_to_the_reference_does_not_make_noise_look_large() -> None:
    assert reward(Verdict.CORRECT, 1.1, 1.1) == pytest.approx(0.4 + 1.2 * math.log(11) / math.log(30))
