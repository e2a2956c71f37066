"""The proposer that asks people, over the real loop and store: a queue answered in any order, and not lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from engine.loop.search_loop import SearchLoop
from engine.proposing.briefing import Subject
from engine.proposing.findings import Findings
from engine.proposing.manual import ManualProposer
from engine.records import Candidate, CandidateState, CommandKind, ProposerKind, RunState, Step
from engine.settings import RunSettings
from engine.store.control import Control
from engine.store.reader import Reader
from engine.store.run_store import RunStore
from engine.tasks.catalogue import entry_point, find_task
from tests.engine.loop.scripted import ScriptedJudge, in_state, make_run, until
from tests.engine.proposing.model_server import edit_answer, kernel, module_answer

FACTS = {"kind": "modelled", "toolchain": {"arch": "sm_90"}, "cases": [], "baselines": {}}


async def manual_search(db: Path, run: int, people: Callable[[], Awaitable[None]]) -> tuple[RunState, list[Candidate]]:
    """A search beside which people do something; it is cut when they are done and it has not ended."""
    store = RunStore.take(db, run)
    store.set_state(RunState.RUNNING)
    store.task_opened("cpu (modelling sm_90)", "modelled", FACTS, {})
    settings = RunSettings.model_validate(store.run().settings)
    task = find_task("softmax")
    with Reader(db) as reader:
        subject = Subject(task, entry_point(task), "cpu", FACTS, settings)
        proposer = ManualProposer(Findings(reader, run, subject), store.ledger)
        work = asyncio.create_task(SearchLoop(store, [ScriptedJudge()], proposer, settings).run())
        try:
            async with asyncio.timeout(60):
                await people()
                if store.run().state is not RunState.RUNNING:
                    await work
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
    state, candidates = store.run().state, store.candidates()
    store.release()
    return state, candidates


def answers(db: Path, run: int) -> list[str]:
    with Reader(db) as reader:
        return [command.answer for command in reversed(reader.commands(run)) if command.kind is CommandKind.ANSWER]


def say(db: Path, run: int, number: int, text: str) -> None:
    with Control(db) as control:
        control.ask(run, CommandKind.ANSWER, number, text)


def waiting(run: int, count: int) -> Callable[[Reader], bool]:
    return lambda reader: len(in_state(reader, run, CandidateState.PROPOSING)) >= count


async def test_prompts_wait_in_a_queue_and_are_answered_in_any_order(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    run = make_run(db, budget=3, proposer="manual", max_waiting=3)

    async def people() -> None:
        await until(db, waiting(run, 3))
        with Reader(db) as reader:
            (call,) = reader.calls(run, 2)
            prompt = "".join(text for _, text in reader.prompt(call.id))
        assert (call.model, call.destination, call.cost_usd) == ("manual", "a person", None)
        assert find_task("softmax").source.strip() in prompt
        for number in (3, 1, 2):
            say(db, run, number, module_answer(f"Kernel {number}"))
            await until(db, lambda reader, n=number: reader.candidates(run, [n])[0].verdict is not None)  # type: ignore[misc]
        await until(db, lambda reader: bool((o := reader.run(run)) and o.run.state.ended))

    state, candidates = await manual_search(db, run, people)
    assert state is RunState.DONE
    assert [candidate.proposer for candidate in candidates] == [ProposerKind.MANUAL] * 3
    assert answers(db, run) == [f"the answer is taken as candidate {number}" for number in (3, 1, 2)]
    with Reader(db) as reader:
        assert "Kernel 2" in (reader.source(run, 2) or "")
        assert reader.spending(run).usd == 0.0


async def test_an_answer_that_cannot_be_used_is_refused_and_the_prompt_waits_on(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    run = make_run(db, budget=2, proposer="manual", max_waiting=1, policy={"name": "iterative_refinement"})

    async def people() -> None:
        await until(db, waiting(run, 1))
        say(db, run, 1, "I would use shared memory.")
        say(db, run, 9, module_answer())
        say(db, run, 1, kernel("A plain module"))
        say(db, run, 1, kernel("Twice"))
        await until(db, lambda reader: len(reader.candidates(run)) == 2)
        say(db, run, 2, edit_answer("no such line", "another"))
        say(db, run, 1, kernel("Too late"))
        say(db, run, 2, edit_answer("num_warps=8", "num_warps=4"))
        await until(db, lambda reader: bool((o := reader.run(run)) and o.run.state.ended))

    state, candidates = await manual_search(db, run, people)
    assert state is RunState.DONE
    said = answers(db, run)
    assert "the answer holds no code" in said[0]
    assert said[1:3] == [f"run {run} has no candidate 9", "the answer is taken as candidate 1"]
    # Whether the first answer has been read meanwhile, or not yet.
    assert said[3].startswith(("candidate 1 has been answered already", "candidate 1 does not wait for an answer"))
    assert "searches for lines that are not there" in said[4]
    assert said[5:] == [
        "candidate 1 does not wait for an answer; it is evaluated",
        "the answer is taken as candidate 2",
    ]
    assert [candidate.step for candidate in candidates] == [Step.STRUCTURAL, Step.LOCAL]
    with Reader(db) as reader:
        assert "num_warps=4" in (reader.source(run, 2) or "")


async def test_an_answer_outlives_the_engine_that_asked(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    run = make_run(db, budget=2, proposer="manual", max_waiting=2)

    async def nobody() -> None:
        await until(db, waiting(run, 2))

    await manual_search(db, run, nobody)
    say(db, run, 2, module_answer("Given to no engine"))
    assert f"kernelgrove resume {run}" in answers(db, run)[0]

    async def people() -> None:
        await until(db, lambda reader: reader.candidates(run, [2])[0].verdict is not None)
        say(db, run, 1, module_answer("The other"))
        await until(db, lambda reader: bool((o := reader.run(run)) and o.run.state.ended))

    state, candidates = await manual_search(db, run, people)
    assert state is RunState.DONE
    assert len(candidates) == 2
    with Reader(db) as reader:
        assert "Given to no engine" in (reader.source(run, 2) or "")


async def test_a_run_that_asks_no_person_refuses_answers(tmp_path: Path) -> None:
    from tests.engine.loop.scripted import search

    db = tmp_path / "runs.db"
    run = make_run(db, budget=1)
    store = RunStore.take(db, run)
    store.add_candidate(None, Step.STRUCTURAL, ProposerKind.MANUAL, {})
    store.release()
    say(db, run, 1, module_answer())
    await search(db, run)
    assert answers(db, run) == [f"run {run} asks no person for proposals"]
