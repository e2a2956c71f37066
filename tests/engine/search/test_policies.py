"""Every policy: pure, in need of nothing pruned, and each with its own character."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.records import Candidate, CandidateState, Step, Verdict
from engine.search.choice import generator
from engine.search.context import choose_context
from engine.search.policies import POLICIES, find_policy
from engine.search.snapshot import ROOT, Snapshot, allowed_steps, take_snapshot
from engine.settings import PolicySettings, SettingsError
from tests.engine.search.trees import candidate, candidates, exhaustions

EVERY_SETTING = st.builds(
    PolicySettings,
    name=st.sampled_from(list(POLICIES)),
    owed_refinements=st.integers(0, 2),
    stagnation=st.floats(0, 2),
    max_weight=st.floats(0, 1),
    actions=st.sampled_from(["both", "local", "structural"]),
    selection=st.sampled_from(["ucb", "random", "greedy"]),
    context=st.sampled_from(["recent", "best", "mixed"]),
    width=st.integers(1, 4),
)


@given(candidates(), exhaustions, EVERY_SETTING, st.integers(0, 99))
def test_a_choice_can_be_carried_out_shows_nothing_pruned_and_is_the_same_again(
    tree: list[Candidate], exhausted: frozenset[tuple[int, Step]], settings: PolicySettings, seed: int
) -> None:
    policy = find_policy(settings.name)
    snapshot = take_snapshot(tree, exhausted, allowed_steps(settings))
    choice = policy(snapshot, settings, generator(seed, len(tree)))
    again = policy(take_snapshot(tree, exhausted, allowed_steps(settings)), settings, generator(seed, len(tree)))
    assert choice == again
    if choice is None:
        return
    assert choice.step in snapshot.steps_left(choice.parent)
    assert choice.parent == ROOT or choice.parent in snapshot.nodes
    shown = choice.context
    if shown is None:
        shown = choose_context(snapshot, choice.parent, choice.step, settings.context_pool, generator(seed, 0)).numbers
    assert set(shown) <= set(snapshot.nodes)
    assert len(set(shown)) == len(shown)
    by_number = {each.number: each for each in tree}
    assert not any(by_number[number].pruned for number in (*shown, choice.parent) if number != ROOT)


@given(candidates(), EVERY_SETTING)
def test_a_choice_does_not_depend_on_how_the_picture_came_about(
    tree: list[Candidate], settings: PolicySettings
) -> None:
    policy = find_policy(settings.name)
    at_once = take_snapshot(tree, (), allowed_steps(settings))
    piecemeal = Snapshot(steps=allowed_steps(settings))
    for each in tree:
        piecemeal = piecemeal.after([each], asked=at_once.asked)
    first, second = (policy(picture, settings, generator(1, 1)) for picture in (at_once, piecemeal))
    assert first == second


def test_an_unknown_policy_is_named_with_those_there_are() -> None:
    with pytest.raises(SettingsError, match=r"no policy 'uct'; there are adaexplore, single, "):
        find_policy("uct")


def choice_of(name: str, tree: list[Candidate], **more: object) -> tuple[int, Step, tuple[int, ...] | None] | None:
    settings = PolicySettings.model_validate({"name": name, **more})
    snapshot = take_snapshot(tree, (), allowed_steps(settings))
    choice = find_policy(name)(snapshot, settings, generator(0, len(tree)))
    return None if choice is None else (choice.parent, choice.step, choice.context)


STRUCTURES = [candidate(n, value=v, step=Step.STRUCTURAL, speedup=v) for n, v in ((1, 0.5), (2, 1.2), (3, 0.9))]


def test_single_asks_once_even_if_nothing_came_of_it() -> None:
    assert choice_of("single", []) == (ROOT, Step.STRUCTURAL, ())
    assert choice_of("single", [candidate(1, None, None, state=CandidateState.FAILED)]) is None


def test_parallel_samples_see_nothing_of_each_other() -> None:
    assert choice_of("parallel_sampling", STRUCTURES) == (ROOT, Step.STRUCTURAL, ())


def test_iterative_refinement_follows_one_chain_better_or_not() -> None:
    assert choice_of("iterative_refinement", []) == (ROOT, Step.STRUCTURAL, ())
    chain = [candidate(1, step=Step.STRUCTURAL), candidate(2, 1, 1.5), candidate(3, 2, 0.05)]
    assert choice_of("iterative_refinement", chain) == (3, Step.LOCAL, None)
    waiting = candidate(4, 3, None, state=CandidateState.QUEUED)
    assert choice_of("iterative_refinement", [*chain, waiting]) is None


@pytest.mark.parametrize(("context", "shown"), [("recent", (2, 3)), ("best", (2, 3)), ("mixed", None)])
def test_large_only_shows_recent_or_best_ones_or_some_of_both(context: str, shown: tuple[int, ...] | None) -> None:
    choice = choice_of("large_only", STRUCTURES, context=context, context_pool=2)
    assert choice is not None
    assert choice[:2] == (ROOT, Step.STRUCTURAL)
    if shown is None:
        assert choice[2] is not None
        assert choice[2][0] == 3
        assert choice[2][1] in (1, 2)
    else:
        assert choice[2] == shown


def test_a_beam_is_filled_and_its_least_edited_member_edited() -> None:
    assert choice_of("beam", STRUCTURES[:1], width=2) == (ROOT, Step.STRUCTURAL, ())
    assert choice_of("beam", STRUCTURES, width=2) == (2, Step.LOCAL, None)
    assert choice_of("beam", [*STRUCTURES, candidate(4, 2, 0.05)], width=2) == (3, Step.LOCAL, None)
    assert choice_of("beam", [*STRUCTURES, candidate(4, 2, 1.6)], width=2) == (4, Step.LOCAL, None)


def test_islands_breed_among_themselves_and_show_both_parents_of_a_crossing() -> None:
    seeds = [candidate(n, value=1.0, step=Step.STRUCTURAL, speedup=1.0) for n in range(1, 5)]
    assert choice_of("evolution", seeds[:3], width=2) == (ROOT, Step.STRUCTURAL, ())
    crossings = mutations = visits = 0
    for extra in range(200):
        settings = PolicySettings(name="evolution", width=2)
        choice = find_policy("evolution")(take_snapshot(seeds), settings, generator(extra, 5))
        assert choice is not None
        assert choice.parent in (1, 3), "the turn of island 0, which holds 1 and 3"
        if choice.step is Step.LOCAL:
            mutations += 1
            continue
        crossings += 1
        assert choice.context is not None
        visits += choice.context[1] in (2, 4)
    assert crossings > 20
    assert mutations > 80
    assert 0 < visits < crossings / 2


def test_the_ablations_take_steps_away() -> None:
    first = [candidate(1, step=Step.STRUCTURAL, speedup=1.0)]
    assert choice_of("adaexplore", [], actions="local") == (ROOT, Step.STRUCTURAL, None)
    assert choice_of("adaexplore", first, actions="local") == (1, Step.LOCAL, None)
    assert choice_of("adaexplore", first, actions="structural") == (1, Step.STRUCTURAL, None)


def test_greedy_and_random_selection() -> None:
    greedy = choice_of("adaexplore", STRUCTURES, selection="greedy")
    assert greedy is not None
    assert greedy[0] == 2
    settings = PolicySettings(selection="random")
    snapshot = take_snapshot(STRUCTURES)
    drawn = {c.parent for seed in range(60) if (c := find_policy("adaexplore")(snapshot, settings, generator(seed, 1)))}
    assert drawn == {ROOT, 1, 2, 3}


def first_arms(tree: list[Candidate], **more: object) -> dict[int | None, dict[str, object]]:
    settings = PolicySettings.model_validate(more)
    choice = find_policy("adaexplore")(take_snapshot(tree), settings, generator(0, len(tree)))
    assert choice is not None
    return {arm["arm"]: arm for arm in choice.why["path"][0]["arms"]}


def test_a_new_structure_is_valued_at_what_its_refinements_will_usually_add_until_it_has_had_them() -> None:
    old = [candidate(1, value=0.7, step=Step.STRUCTURAL), candidate(2, 1, 0.05), candidate(3, 2, 1.1)]
    new = candidate(4, value=0.9, step=Step.STRUCTURAL, novelty=0.8)
    owed = first_arms([*old, new])[4]
    assert (owed["value"], owed["owed"]) == (pytest.approx(0.9 + 0.4), True)
    assert choice_of("adaexplore", [*old, new]) == (4, Step.LOCAL, None)
    one = [*old, new, candidate(5, 4, 0.05)]
    assert first_arms(one)[4]["owed"]
    both = [*one, candidate(6, 4, 0.05)]
    # What the second structure's refinements came to counts as well from now on, but no more for itself.
    assert (first_arms(both)[4]["value"], "owed" in first_arms(both)[4]) == (0.9, False)


@pytest.mark.parametrize(
    "other",
    [
        candidate(4, value=0.9, step=Step.STRUCTURAL, novelty=0.02),
        candidate(4, value=0.05, step=Step.STRUCTURAL, verdict=Verdict.INCORRECT),
        candidate(4, value=0.9, step=Step.STRUCTURAL, novelty=0.8),
    ],
    ids=["like another", "wrong", "as published"],
)
def test_nothing_is_owed_to_what_is_not_new_or_not_right_or_in_the_published_method(other: Candidate) -> None:
    old = [candidate(1, value=0.7, step=Step.STRUCTURAL), candidate(2, 1, 0.05), candidate(3, 2, 1.1)]
    published = {"owed_refinements": 0} if other.novelty == 0.8 else {}
    assert "owed" not in first_arms([*old, other], **published)[4]


def chance_of_a_structural_step(tree: list[Candidate], stagnation: float) -> float:
    settings = PolicySettings(stagnation=stagnation, owed_refinements=0, selection="greedy")
    snapshot = take_snapshot(tree)
    choices = [find_policy("adaexplore")(snapshot, settings, generator(seed, 1)) for seed in range(600)]
    return sum(choice is not None and choice.step is Step.STRUCTURAL for choice in choices) / len(choices)


def test_a_stagnating_component_raises_the_chance_of_a_structural_step_and_an_improving_one_lowers_it() -> None:
    improving = [candidate(1, value=0.5, step=Step.STRUCTURAL, speedup=1.0), candidate(2, 1, 1.0, speedup=2.0)]
    stagnant = [
        *improving,
        candidate(3, 1, 0.6, speedup=1.2),
        *(candidate(number, number - 1, 0.6, speedup=1.2) for number in range(4, 8)),
    ]
    assert chance_of_a_structural_step(improving, 0.0) == pytest.approx(0.2, abs=0.05)
    assert chance_of_a_structural_step(stagnant, 0.0) == pytest.approx(0.2, abs=0.05)
    assert chance_of_a_structural_step(improving, 0.5) == pytest.approx(0.2 / 1.5, abs=0.05)
    assert chance_of_a_structural_step(stagnant, 0.5) == pytest.approx(0.2 * 3, abs=0.06)
