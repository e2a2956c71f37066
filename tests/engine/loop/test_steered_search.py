"""The loop over the real store: how searches end, what people ask of them, several devices."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from engine.events import Stalled
from engine.judging.confirmation import Bar
from engine.judging.facts import MachineError
from engine.loop.event_command import EventCommand
from engine.proposing.proposer import ProposalRequest, Proposed
from engine.records import CandidateState, CommandKind, Evaluation, ProposerKind, RunState, Step, Verdict
from engine.settings import RunSettings
from engine.store.control import Control
from engine.store.reader import Reader
from engine.store.run_store import RunStore
from engine.tasks.catalogue import find_task
from tests.engine.loop.scripted import (
    ScriptedJudge,
    ScriptedProposer,
    in_state,
    make_run,
    search,
    state_of,
    until,
)


class TimedJudge(ScriptedJudge):
    """Gives the first text 100 us, and each after that a time from a list, the last one for ever."""

    def __init__(self, *times_us: float) -> None:
        super().__init__()
        self.times_us = times_us

    async def evaluate(
        self, source: str, *, known: Collection[str], bar: Bar, on_waiting: Callable[[str], None]
    ) -> Evaluation:
        await super().evaluate(source, known=known, bar=bar, on_waiting=on_waiting)
        time_us = self.times_us[min(len(self.judged), len(self.times_us)) - 1]
        return Evaluation(Verdict.CORRECT, "time", "", time_us=time_us, speedup={"eager": 100.0 / time_us})


def ended(db: Path, run: int) -> tuple[RunState, str | None, str | None]:
    with Reader(db) as reader:
        overview = reader.run(run)
    assert overview is not None
    return overview.run.state, overview.run.ended_by, overview.run.reason


@pytest.mark.parametrize(
    ("settings", "times_us", "judged", "by", "reason"),
    [
        ({"target": "2x"}, (90.0, 60.0, 50.0), 3, "target", "the target of 2x is met"),
        ({"target": "bound:0.9"}, (90.0, 23.0, 22.0), 3, "target", "the target of bound:0.9 is met"),
        ({"patience": 3}, (90.0, 80.0, 80.0), 5, "patience", "no new best in the last 3 candidates"),
        ({"until": 1.0}, (90.0,), 0, "time", None),
        ({"budget": 4}, (90.0,), 4, "budget", "the budget of 4 candidates is used up"),
    ],
)
async def test_a_search_ends_by_what_was_set_and_says_so(
    tmp_path: Path, settings: dict[str, object], times_us: tuple[float, ...], judged: int, by: str, reason: str | None
) -> None:
    db = tmp_path / "runs.db"
    run = make_run(db, **{"budget": 20, **settings})
    store = RunStore.take(db, run)
    store.task_opened("gpu", "measured", {"baselines": {"eager": 100.0, "bound": 20.0}}, {})
    store.release()
    _, candidates = await search(db, run, ScriptedProposer(structures=50), TimedJudge(*times_us))
    assert [candidate.state for candidate in candidates] == [CandidateState.EVALUATED] * judged
    assert ended(db, run)[:2] == (RunState.DONE, by)
    if reason is not None:
        assert ended(db, run)[2] == reason


async def test_when_the_target_is_met_what_was_already_proposed_is_judged_and_kept(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    run = make_run(db, budget=20, target="1.1x", workers=4)
    _, candidates = await search(db, run, ScriptedProposer(structures=50), TimedJudge(50.0))
    assert len(candidates) >= 4
    assert {candidate.state for candidate in candidates} == {CandidateState.EVALUATED}


async def test_a_stall_is_told_once_until_there_is_a_new_best(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    run = make_run(db, budget=12, stall_after=3)
    times_us = (90.0, 90.0, 90.0, 90.0, 90.0, 80.0, 80.0)
    await search(db, run, ScriptedProposer(structures=50), TimedJudge(*times_us))
    with Reader(db) as reader:
        stalls = [recorded.event for recorded in reader.events(run) if isinstance(recorded.event, Stalled)]
    assert stalls == [Stalled(3), Stalled(3)]


async def test_proposals_that_only_repeat_end_the_search_although_they_use_no_budget(tmp_path: Path) -> None:
    class RepeatingProposer(ScriptedProposer):
        async def propose(self, request: ProposalRequest) -> Proposed:
            return Proposed("always the same", "the same", {})

    db = tmp_path / "runs.db"
    run = make_run(db, budget=20)
    async with asyncio.timeout(60):
        _, candidates = await search(db, run, RepeatingProposer())
    assert [candidate.state for candidate in candidates].count(CandidateState.DUPLICATE) == 50
    assert ended(db, run) == (RunState.DONE, "exhausted", "the last 50 proposals repeated what the run holds")


async def test_a_machine_that_fails_on_everything_ends_the_search_and_uses_no_budget(tmp_path: Path) -> None:
    class BrokenJudge(ScriptedJudge):
        async def evaluate(
            self, source: str, *, known: Collection[str], bar: Bar, on_waiting: Callable[[str], None]
        ) -> Evaluation:
            return Evaluation(Verdict.INFRASTRUCTURE_ERROR, "load", "the GPU fell off the bus")

    db = tmp_path / "runs.db"
    run = make_run(db, budget=20)
    with pytest.raises(MachineError, match="3 candidates in a row, 3 times each; the last time: the GPU fell off"):
        await search(db, run, ScriptedProposer(structures=50), BrokenJudge())
    with Reader(db) as reader:
        overview = reader.run(run)
    assert overview is not None
    assert overview.judged == 0


async def test_a_forced_step_is_taken_where_it_was_asked_for(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    run = make_run(db, budget=40)
    first: list[str] = []

    def force(source: str) -> None:
        first.append(source)
        if len(first) == 6:
            with Control(db) as control:
                control.ask(run, CommandKind.FORCE, 1, "structural")
                control.ask(run, CommandKind.FORCE, 1, "local")
                control.ask(run, CommandKind.STOP)

    await search(db, run, ScriptedProposer(structures=50, variations=1), ScriptedJudge(force))
    with Reader(db) as reader:
        answers = {command.argument: (str(command.state), command.answer) for command in reader.commands(run)}
        made = reader.candidates(run)
        forced = next(c for c in made if (note := reader.proposal(run, c.number)) and "command" in note.why)
        why = reader.proposal(run, forced.number)
    assert answers["structural"] == ("done", f"a structural step from 1 becomes candidate {forced.number}")
    assert answers["local"] == ("refused", "no more variations")
    assert (forced.parent, forced.step) == (1, Step.STRUCTURAL)
    assert why is not None
    assert "context" in why.why


async def test_what_a_person_enters_or_wants_judged_again_comes_first_and_delays_the_end(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    run = make_run(db, budget=3)
    await search(db, run)
    with Control(db) as control:
        own = control.add_human(run, 1, "by hand", "mine")
        control.ask(run, CommandKind.RETEST, 2)
    judge = ScriptedJudge()
    state, candidates = await search(db, run, None, judge)
    assert state is RunState.DONE
    with Reader(db) as reader:
        assert sorted(judge.judged) == sorted(["by hand", reader.source(run, 2) or ""])
    assert candidates[own - 1].verdict is Verdict.CORRECT
    assert not any(candidate.retest for candidate in candidates)
    connection = sqlite3.connect(db)
    counts = connection.execute(
        "SELECT candidate, count(*) FROM evaluations WHERE state = 'done' GROUP BY 1"
    ).fetchall()
    connection.close()
    assert counts == [(1, 1), (2, 2), (3, 1), (own, 1)]


async def test_a_retest_that_the_machine_cannot_do_leaves_the_verdict(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    run = make_run(db, budget=2)
    _, before = await search(db, run)
    with Control(db) as control:
        control.ask(run, CommandKind.RETEST, 1)

    class BrokenJudge(ScriptedJudge):
        async def evaluate(
            self, source: str, *, known: Collection[str], bar: Bar, on_waiting: Callable[[str], None]
        ) -> Evaluation:
            return Evaluation(Verdict.INFRASTRUCTURE_ERROR, "load", "no memory")

    _, after = await search(db, run, None, BrokenJudge())
    assert [(c.verdict, c.time_us, c.state) for c in after] == [(c.verdict, c.time_us, c.state) for c in before]
    with Reader(db) as reader:
        assert any("1 keeps its verdict: no memory" in str(recorded.event) for recorded in reader.events(run))


async def test_a_search_from_a_persons_kernel_judges_it_first_and_grows_from_it(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    with Control(db) as control:
        run = control.create_run(find_task("softmax"), RunSettings(budget=5), start="mine")
    judge = ScriptedJudge()
    state, candidates = await search(db, run, ScriptedProposer(structures=50), judge)
    assert state is RunState.DONE
    assert judge.judged[0] == "mine"
    assert (candidates[0].proposer, candidates[0].parent) == (ProposerKind.HUMAN, None)
    assert all(candidate.parent is not None for candidate in candidates[1:])
    assert len(candidates) == 6


async def test_two_devices_judge_at_once_and_neither_is_idle_while_candidates_wait(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    run = make_run(db, budget=8)
    at_once: list[int] = []
    busy: set[object] = set()

    class Device(ScriptedJudge):
        async def evaluate(
            self, source: str, *, known: Collection[str], bar: Bar, on_waiting: Callable[[str], None]
        ) -> Evaluation:
            assert self not in busy, "one worker a device"
            busy.add(self)
            at_once.append(len(busy))
            await asyncio.sleep(0.05)
            busy.discard(self)
            return await super().evaluate(source, known=known, bar=bar, on_waiting=on_waiting)

    devices = [Device(), Device()]
    _, candidates = await search(db, run, ScriptedProposer(structures=50), *devices)
    assert len(candidates) == 8
    assert at_once.count(2) >= 4
    assert {len(device.judged) for device in devices} == {4}


async def test_a_device_that_is_lost_leaves_its_work_to_the_others(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    run = make_run(db, budget=6)

    class Lost(ScriptedJudge):
        async def evaluate(
            self, source: str, *, known: Collection[str], bar: Bar, on_waiting: Callable[[str], None]
        ) -> Evaluation:
            raise MachineError("cuda:1 is gone")

    good = ScriptedJudge()
    state, candidates = await search(db, run, ScriptedProposer(structures=50), Lost(), good)
    assert state is RunState.DONE
    assert [candidate.verdict for candidate in candidates] == [Verdict.CORRECT] * 6
    assert len(good.judged) == 6


async def test_the_most_promising_candidate_is_judged_first(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    run = make_run(db, budget=4, gate="all", max_waiting=4)
    judge = TimedJudge(90.0, 30.0, 50.0)
    work = asyncio.create_task(search(db, run, ScriptedProposer(structures=50), judge))

    async def approve(count: int, *numbers: int) -> None:
        await until(db, lambda reader: len(in_state(reader, run, CandidateState.AWAITING_APPROVAL)) >= count)
        with Control(db) as control:
            for number in numbers:
                control.ask(run, CommandKind.APPROVE, number)

    await approve(4, 1, 2)
    await until(db, lambda reader: len(in_state(reader, run, CandidateState.EVALUATED)) == 2)
    with Control(db) as control:
        control.ask(run, CommandKind.PAUSE)
    await until(db, lambda reader: state_of(reader, run) is RunState.PAUSED)
    with sqlite3.connect(db) as connection:
        connection.execute("UPDATE candidates SET parent = 1, step = 'local' WHERE number = 3")
        connection.execute("UPDATE candidates SET parent = 2, step = 'local' WHERE number = 4")
    await approve(2, 3, 4)
    await until(db, lambda reader: len(in_state(reader, run, CandidateState.QUEUED)) == 2)
    with Control(db) as control:
        control.ask(run, CommandKind.RESUME)
    await work
    with Reader(db) as reader:
        assert judge.judged[2:] == [reader.source(run, 4), reader.source(run, 3)]


# The person's own command


def recorder(tmp_path: Path) -> tuple[str, Path]:
    """A command that keeps what it is told, a line each."""
    told = tmp_path / "told"
    script = tmp_path / "tell.py"
    script.write_text(f"import sys\nopen({str(told)!r}, 'a').write(sys.stdin.read() + '\\n')\n")
    return f"{sys.executable} {script}", told


async def test_the_persons_command_hears_of_bests_approvals_and_the_end(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    command, told = recorder(tmp_path)
    run = make_run(db, budget=3, gate="all", on_event=command)
    store = RunStore.take(db, run)
    events = EventCommand(store, command)
    store.set_state(RunState.RUNNING)
    for index in range(2):
        number = store.add_candidate(None, Step.STRUCTURAL, ProposerKind.COMPILER, {})
        store.proposed(number, f"source {index}", "idea", None, True)
    with Control(db) as control:
        control.ask(run, CommandKind.APPROVE, 1)
    store.obey()
    store.claim(1)
    store.evaluated(1, Evaluation(Verdict.CORRECT, "time", "", time_us=5.0), 2.0, 1.0)
    store.tell_of_a_stall(20)
    store.set_state(RunState.DONE, "the budget is used up", ended_by="budget")
    events.stop()
    async with asyncio.timeout(60):
        await events.follow()
    store.release()
    documents = [json.loads(line) for line in told.read_text().splitlines()]
    assert [document["event"] for document in documents] == ["new_best", "stall", "end", "approval"]
    assert (documents[0]["candidate"], documents[0]["speedup"]) == (1, 2.0)
    assert documents[2]["ended_by"] == "budget"
    assert documents[3]["candidates"] == [1, 2]
    assert {document["run"] for document in documents} == {run}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/nowhere/at/all", "on_event cannot be run and is left alone from now on"),
        (f"{sys.executable} -c 'raise SystemExit(3)'", "on_event ended with status 3 for new_best"),
        (f"{sys.executable} -c 'import time; time.sleep(600)'", "on_event took longer than 0.5 s for new_best"),
    ],
)
async def test_a_command_that_fails_or_hangs_is_noted_and_harms_nothing(
    tmp_path: Path, command: str, said: str
) -> None:
    db = tmp_path / "runs.db"
    run = make_run(db, budget=3)
    store = RunStore.take(db, run)
    events = EventCommand(store, command, timeout_s=0.5)
    number = store.add_candidate(None, Step.STRUCTURAL, ProposerKind.COMPILER, {})
    store.proposed(number, "source", "idea", None, False)
    store.claim(number)
    store.evaluated(number, Evaluation(Verdict.CORRECT, "time", "", time_us=5.0), 2.0, 1.0)
    events.stop()
    started = time.monotonic()
    async with asyncio.timeout(60):
        await events.follow()
    assert time.monotonic() - started < 50
    store.release()
    with Reader(db) as reader:
        notes = [str(recorded.event) for recorded in reader.events(run) if recorded.event.kind == "noted"]
    assert len(notes) == 1
    assert said in notes[0]
