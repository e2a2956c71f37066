"""The loop over the real store: budget, people, replay. Judge and proposer are scripted and strict."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Collection
from pathlib import Path
from typing import ClassVar

import pytest

from engine.judging.confirmation import Bar
from engine.judging.facts import MachineError
from engine.loop.evaluation_tasks import MAX_ATTEMPTS
from engine.proposing.proposer import ProposalFailed, ProposalRequest, Proposed
from engine.records import (
    CandidateState,
    CommandKind,
    Evaluation,
    Gate,
    RunState,
    Step,
    Verdict,
)
from engine.search.policies import POLICIES
from engine.store.control import Control
from engine.store.reader import Reader
from engine.store.run_store import RunStore
from tests.engine.loop.scripted import ScriptedJudge, ScriptedProposer, in_state, make_run, search, state_of, until


async def test_a_search_judges_its_budget_and_says_why_it_ended(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    run = make_run(db)
    state, candidates = await search(db, run)
    assert state is RunState.DONE
    assert [candidate.state for candidate in candidates] == [CandidateState.EVALUATED] * 8
    with Reader(db) as reader:
        overview = reader.run(run)
    assert overview is not None
    assert overview.run.ended_by == "budget"
    assert overview.best_time_us == min(c.time_us for c in candidates if c.time_us is not None)


async def test_a_candidate_must_beat_the_best_so_far_by_what_the_run_allows(tmp_path: Path) -> None:
    judge = ScriptedJudge()
    db = tmp_path / "runs.db"
    _, candidates = await search(db, make_run(db, allow=["no_triton"]), None, judge)
    times = [candidate.time_us for candidate in candidates]
    assert [bar.time_us for bar in judge.bars] == [
        min(filter(None, times[:before]), default=None) for before in range(len(times))
    ]
    assert {bar.allow for bar in judge.bars} == {frozenset({"no_triton"})}


@pytest.mark.parametrize("name", list(POLICIES))
async def test_every_policy_searches_to_its_end_and_replays(tmp_path: Path, name: str) -> None:
    trees = []
    for index in range(2):
        db = tmp_path / f"{index}.db"
        run = make_run(db, budget=12, policy={"name": name, "width": 2})
        state, candidates = await search(db, run, ScriptedProposer(99, 99))
        assert state is RunState.DONE
        trees.append([(c.number, c.parent, c.step, c.idea, c.verdict) for c in candidates])
    assert trees[0] == trees[1]
    assert len(trees[0]) == (1 if name == "single" else 12)


async def test_the_same_seed_replays_the_same_tree_and_another_seed_another(tmp_path: Path) -> None:
    trees = []
    for index, seed in enumerate((1, 1, 2)):
        db = tmp_path / f"{index}.db"
        _, candidates = await search(db, make_run(db, seed=seed))
        trees.append([(c.number, c.parent, c.step, c.idea, c.time_us) for c in candidates])
    assert trees[0] == trees[1]
    assert trees[0] != trees[2]


async def test_a_search_that_was_cut_and_resumed_grows_the_same_tree(tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    _, expected = await search(whole, make_run(whole, seed=3))
    cut = tmp_path / "cut.db"
    run = make_run(cut, seed=3)
    proposer = ScriptedProposer()

    class Cut(MachineError):
        pass

    def fail_at_fifth(_: str) -> None:
        if len(judge.judged) == 4:
            raise Cut

    judge = ScriptedJudge(fail_at_fifth)
    with pytest.raises(Cut):
        await search(cut, run, proposer, judge)
    _, resumed = await search(cut, run, proposer)
    assert [(c.number, c.parent, c.idea, c.time_us) for c in resumed] == [
        (c.number, c.parent, c.idea, c.time_us) for c in expected
    ]


@pytest.mark.parametrize("settings", [{"budget": 2}, {"budget": 50, "max_time": 0.001}])
async def test_a_proposal_that_was_being_made_when_the_engine_died_is_made_again_before_the_end(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    db = tmp_path / "runs.db"
    run = make_run(db, **settings)

    class Cut(Exception):
        pass

    class DyingProposer(ScriptedProposer):
        async def propose(self, request: ProposalRequest) -> Proposed:
            if request.number == 2:
                with sqlite3.connect(db) as connection:
                    connection.execute("UPDATE runs SET active_seconds = 1")
                raise Cut
            return await super().propose(request)

    with pytest.raises(Cut):
        await search(db, run, DyingProposer())
    async with asyncio.timeout(20):
        state, candidates = await search(db, run)
    assert state is RunState.DONE
    assert [candidate.state for candidate in candidates] == [CandidateState.EVALUATED] * 2


async def test_what_a_proposer_could_not_write_is_remembered_with_the_run(tmp_path: Path) -> None:
    recipes = [{"structure": "s", "parameters": {"BLOCK": block}} for block in (1, 2, 4)]

    class SpoiltProposer(ScriptedProposer):
        async def propose(self, request: ProposalRequest) -> Proposed:
            made = await super().propose(request)
            if request.number == 1:
                raise ProposalFailed("cannot be written", recipes[:2])
            return Proposed(made.source, made.idea, made.recipe, tuple(recipes[2:]) if request.number == 2 else ())

    db = tmp_path / "runs.db"
    run = make_run(db, budget=3)
    await search(db, run, SpoiltProposer())
    store = RunStore.take(db, run)
    assert store.tried() == recipes
    store.release()


async def test_a_proposer_with_nothing_left_ends_the_search(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    run = make_run(db, budget=100)
    state, candidates = await search(db, run, ScriptedProposer(structures=2, variations=0))
    with Reader(db) as reader:
        overview = reader.run(run)
    assert overview is not None
    assert (state, overview.run.ended_by) == (RunState.DONE, "exhausted")
    assert [candidate.step for candidate in candidates] == [Step.STRUCTURAL] * 2


async def test_failed_proposals_use_budget_and_grow_nothing(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    run = make_run(db, budget=4)
    _, candidates = await search(db, run, ScriptedProposer(failing=(2,)))
    assert [candidate.state for candidate in candidates].count(CandidateState.FAILED) == 1
    assert len(candidates) == 4
    assert all(candidate.parent != 2 for candidate in candidates)


async def test_with_every_step_gated_nothing_is_judged_before_it_is_approved(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    run = make_run(db, budget=2, gate=Gate.ALL)
    judge = ScriptedJudge()
    work = asyncio.create_task(search(db, run, None, judge))
    await until(db, lambda reader: len(in_state(reader, run, CandidateState.AWAITING_APPROVAL)) >= 2)
    assert judge.judged == []
    with Control(db) as control:
        control.ask(run, CommandKind.REJECT, 1, "no")
        control.ask(run, CommandKind.APPROVE, 2)
    await until(db, lambda reader: len(in_state(reader, run, CandidateState.EVALUATED)) == 1)
    await until(db, lambda reader: len(in_state(reader, run, CandidateState.AWAITING_APPROVAL)) >= 1)
    with Reader(db) as reader:
        waiting = in_state(reader, run, CandidateState.AWAITING_APPROVAL)
    with Control(db) as control:
        for candidate in waiting:
            control.ask(run, CommandKind.APPROVE, candidate.number)
    state, candidates = await work
    assert state is RunState.DONE
    assert candidates[0].state is CandidateState.REJECTED
    assert len(judge.judged) == 2


async def test_pause_resume_and_stop(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    run = make_run(db, budget=1000)
    work = asyncio.create_task(search(db, run, ScriptedProposer(structures=1000)))
    await until(db, lambda reader: len(reader.candidates(run)) > 3)
    with Control(db) as control:
        control.ask(run, CommandKind.PAUSE)
    await until(db, lambda reader: state_of(reader, run) is RunState.PAUSED)
    with Reader(db) as reader:
        frozen = len(reader.candidates(run))
    with Control(db) as control:
        control.ask(run, CommandKind.RESUME)
    await until(db, lambda reader: len(reader.candidates(run)) > frozen)
    with Control(db) as control:
        control.ask(run, CommandKind.STOP)
    state, candidates = await work
    assert state is RunState.STOPPED
    assert all(candidate.state.final for candidate in candidates)


async def test_a_paused_search_can_be_stopped(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    run = make_run(db, budget=1000)
    work = asyncio.create_task(search(db, run, ScriptedProposer(structures=1000)))
    await until(db, lambda reader: len(reader.candidates(run)) > 1)
    with Control(db) as control:
        control.ask(run, CommandKind.PAUSE)
    await until(db, lambda reader: state_of(reader, run) is RunState.PAUSED)
    with Control(db) as control:
        control.ask(run, CommandKind.STOP)
    state, _ = await work
    assert state is RunState.STOPPED


async def test_a_run_that_ended_goes_on_with_a_higher_budget_and_judges_a_persons_kernel(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    run = make_run(db, budget=2)
    await search(db, run)
    with Control(db) as control:
        number = control.add_human(run, 1, "by hand", "mine")
    _, candidates = await search(db, run)
    assert candidates[number - 1].verdict is Verdict.CORRECT
    assert len(candidates) == 3
    with Control(db) as control:
        control.ask(run, CommandKind.BUDGET, argument="4")
    state, candidates = await search(db, run)
    assert state is RunState.DONE
    assert [candidate.state for candidate in candidates] == [CandidateState.EVALUATED] * 5


async def test_pruning_what_is_being_proposed_cuts_the_proposal_and_the_search_goes_on(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    run = make_run(db, budget=2)
    cut: list[int] = []

    class SlowProposer(ScriptedProposer):
        async def propose(self, request: ProposalRequest) -> Proposed:
            if request.number != 2:
                return await super().propose(request)
            try:
                await asyncio.Event().wait()
            finally:
                cut.append(request.number)
            raise AssertionError("nobody sets the event")

    work = asyncio.create_task(search(db, run, SlowProposer()))
    await until(
        db,
        lambda reader: len(in_state(reader, run, CandidateState.PROPOSING)) == 1 and len(reader.candidates(run)) == 2,
    )
    with Control(db) as control:
        control.ask(run, CommandKind.PRUNE, 2)
    state, candidates = await work
    assert (state, cut) == (RunState.DONE, [2])
    evaluated, abandoned = CandidateState.EVALUATED, CandidateState.ABANDONED
    assert [candidate.state for candidate in candidates] == [evaluated, abandoned, evaluated]


async def test_a_machine_that_fails_is_tried_again_and_not_held_against_the_candidate(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    run = make_run(db, budget=3)

    class FlakyJudge(ScriptedJudge):
        failures = 0

        async def evaluate(
            self, source: str, *, known: Collection[str], bar: Bar, on_waiting: Callable[[str], None]
        ) -> Evaluation:
            if self.failures < 2:
                self.failures += 1
                return Evaluation(Verdict.INFRASTRUCTURE_ERROR, "load", "the judge was killed")
            return await super().evaluate(source, known=known, bar=bar, on_waiting=on_waiting)

    _, candidates = await search(db, run, None, FlakyJudge())
    assert [candidate.verdict for candidate in candidates] == [Verdict.CORRECT] * 3


async def test_a_candidate_that_breaks_the_judges_side_does_not_end_the_search(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    run = make_run(db, budget=3)
    first: list[str] = []

    def break_on_the_first(source: str) -> None:
        first.append(source)
        if source == first[0]:
            raise KeyError("cases")

    state, candidates = await search(db, run, None, ScriptedJudge(break_on_the_first))
    assert state is RunState.DONE
    assert [c.verdict for c in candidates] == [Verdict.INFRASTRUCTURE_ERROR, *[Verdict.CORRECT] * 3], "it is free"
    assert candidates[0].reason == "judging failed: KeyError: 'cases'"
    assert first.count(first[0]) == MAX_ATTEMPTS


async def test_what_compiles_to_known_code_is_named_to_the_judge_and_needs_no_time(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    run = make_run(db, budget=3)

    class CompilingJudge(ScriptedJudge):
        named: ClassVar[list[set[str]]] = []

        async def evaluate(
            self, source: str, *, known: Collection[str], bar: Bar, on_waiting: Callable[[str], None]
        ) -> Evaluation:
            self.named.append(set(known))
            time_us = None if known else 7.0
            return Evaluation(Verdict.CORRECT, "time", "", time_us=time_us, fingerprint="the same for all")

    _, candidates = await search(db, run, None, CompilingJudge())
    first, *later = CompilingJudge.named
    assert first == set()
    assert later
    assert all(named == {"the same for all"} for named in later)
    original, *copies = [candidate.state for candidate in candidates]
    assert original is CandidateState.EVALUATED
    assert set(copies) == {CandidateState.DUPLICATE}


async def test_several_workers_judge_at_once_and_keep_the_budget(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    run = make_run(db, budget=9, workers=3)
    running = 0
    most = 0

    class SlowJudge(ScriptedJudge):
        async def evaluate(
            self, source: str, *, known: Collection[str], bar: Bar, on_waiting: Callable[[str], None]
        ) -> Evaluation:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.3)
            running -= 1
            return await super().evaluate(source, known=known, bar=bar, on_waiting=on_waiting)

    _, candidates = await search(db, run, ScriptedProposer(structures=9), SlowJudge())
    assert len(candidates) == 9
    assert most == 3
