"""The engine as a real process: it outlives its launcher, refuses a second one, and loses nothing when killed."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from engine.api import resume_run, start_run
from engine.events import TaskOpened
from engine.judging.facts import CaseFacts, MachineError, TaskFacts
from engine.loop.launch import LaunchError, launch
from engine.loop.process import keep_facts
from engine.records import Audit, CandidateState, CommandKind, MeasurementKind, RunState, Soundness
from engine.settings import RunSettings
from engine.store.control import Control
from engine.store.reader import Reader, RunOverview
from engine.store.run_store import RunStore
from engine.tasks.catalogue import find_task
from tests.engine.loop.processes import alive, descendants, kill, until

TASK = "swiglu"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "runs.db"
    yield path
    if not path.exists():
        return
    with Reader(path) as reader:
        for overview in reader.runs():
            if overview.engine is not None and overview.engine.alive:
                kill(overview.engine.pid)


def overview_of(db: Path, run: int) -> RunOverview:
    with Reader(db) as reader:
        overview = reader.run(run)
    assert overview is not None
    return overview


def engine_of(db: Path, run: int) -> int:
    engine = overview_of(db, run).engine
    assert engine is not None
    return engine.pid


def committed(db: Path) -> dict[tuple[int, int], str]:
    """Every finished evaluation by its id and candidate, with all that it says."""
    connection = sqlite3.connect(db)
    rows = connection.execute("SELECT id, candidate, document FROM evaluations WHERE state = 'done'").fetchall()
    connection.close()
    return {(row[0], row[1]): row[2] for row in rows}


def judged(db: Path, run: int) -> int:
    with Reader(db) as reader:
        return sum(candidate.state is CandidateState.EVALUATED for candidate in reader.candidates(run))


def test_a_search_ends_with_a_correct_best_and_leaves_no_process(db: Path) -> None:
    run = start_run(db, find_task(TASK), RunSettings(budget=3))
    pid = engine_of(db, run)
    below: set[int] = set()

    def ended() -> bool:
        below.update(descendants(pid))
        return overview_of(db, run).run.state.ended

    until(ended, 240, "the end of the run")
    assert overview_of(db, run).run.state is RunState.DONE, overview_of(db, run).run.reason
    assert overview_of(db, run).correct >= 1
    assert overview_of(db, run).run.best is not None
    with Reader(db) as reader:
        assert reader.audit(find_task(TASK), None) == overview_of(db, run).run.audit == Audit(Soundness.SOUND)
    until(lambda: not alive({pid} | below), what="the end of all processes")


def test_a_second_engine_is_refused_and_says_who_holds_the_run(db: Path) -> None:
    run = start_run(db, find_task(TASK), RunSettings(budget=50))
    pid = engine_of(db, run)
    with pytest.raises(LaunchError, match=f"already worked on by process {pid}"):
        launch(db, run)
    assert alive({pid})
    assert f"process {pid}" in resume_run(db, run)
    kill(pid)


def test_sigterm_puts_work_back_and_leaves_the_run_to_be_resumed(db: Path) -> None:
    run = start_run(db, find_task(TASK), RunSettings(budget=50))
    pid = engine_of(db, run)
    until(lambda: judged(db, run) >= 1, 120, "a first verdict")
    below = descendants(pid)
    os.kill(pid, signal.SIGTERM)
    until(lambda: not alive({pid} | below), what="the end of all processes")
    with Reader(db) as reader:
        assert not [c for c in reader.candidates(run) if c.state is CandidateState.EVALUATING]
    assert overview_of(db, run).run.state is RunState.RUNNING
    resume_run(db, run)
    with Control(db) as control:
        control.ask(run, CommandKind.STOP)
    until(lambda: overview_of(db, run).run.state is RunState.STOPPED, 60, "the stop")


def test_the_engine_outlives_the_session_that_started_it(db: Path) -> None:
    program = (
        f"from tui.commands import main; main(['--db', {str(db)!r}, 'run', {TASK!r}, '--budget', '50', '--detach'])"
    )

    subprocess.run([sys.executable, "-c", program], check=True, start_new_session=True, stdout=subprocess.DEVNULL)
    pid = engine_of(db, 1)
    assert os.getsid(pid) == pid
    with Control(db) as control:
        control.ask(1, CommandKind.STOP)
    until(lambda: overview_of(db, 1).run.state is RunState.STOPPED, 60, "the stop")


def test_ten_kills_at_random_moments_lose_nothing_repeat_nothing_and_leave_no_process(db: Path) -> None:
    random = Random(20260401)
    budget = 12
    with Control(db) as control:
        run = control.create_run(find_task(TASK), RunSettings(budget=budget, workers=2))
    before: dict[tuple[int, int], str] = {}
    for _ in range(10):
        holder = launch(db, run)
        below = descendants(holder.pid)
        with Reader(db) as reader:
            events = reader.last_event()
        # A random number of events further, then a random moment within the work that follows.
        target = events + random.randrange(0, 12)
        with contextlib.suppress(TimeoutError):
            until(lambda target=target: _last_event(db) >= target, random.uniform(0.5, 12.0))  # type: ignore[misc]
        below |= descendants(holder.pid)
        kill(holder.pid)
        until(lambda pid=holder.pid, below=below: not alive({pid} | below), 20, "the end of all processes")  # type: ignore[misc]
        after = committed(db)
        assert before.items() <= after.items(), "a committed evaluation was lost or changed"
        before = after
        if overview_of(db, run).run.state.ended:
            break
    if not overview_of(db, run).run.state.ended:
        resume_run(db, run)
        until(lambda: overview_of(db, run).run.state.ended, 240, "the end of the run")
    after = committed(db)
    assert before.items() <= after.items()
    candidates = [candidate for _, candidate in after]
    assert len(candidates) == len(set(candidates)), "a committed evaluation was repeated"
    overview = overview_of(db, run)
    assert overview.run.state is RunState.DONE, overview.run.reason
    assert overview.judged == budget
    connection = sqlite3.connect(db)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    told = connection.execute(
        "SELECT candidate, count(*) FROM events WHERE kind = 'candidate_evaluated' GROUP BY candidate"
    ).fetchall()
    connection.close()
    assert all(count == 1 for _, count in told)


def _last_event(db: Path) -> int:
    with Reader(db) as reader:
        return reader.last_event()


def test_a_stop_asked_at_once_does_not_wait_until_the_judge_is_ready(db: Path) -> None:
    run = start_run(db, find_task(TASK), RunSettings(budget=50))
    with Control(db) as control:
        control.ask(run, CommandKind.STOP)
    until(lambda: overview_of(db, run).run.state is RunState.STOPPED, 60, "the stop")
    with Reader(db) as reader:
        assert not [recorded for recorded in reader.events(run) if isinstance(recorded.event, TaskOpened)]
    pid = engine_of(db, run)
    until(lambda: not alive({pid} | descendants(pid)), what="the end of all processes")


def test_a_run_is_not_resumed_on_a_device_whose_times_cannot_be_compared(db: Path) -> None:
    with Control(db) as control:
        run = control.create_run(find_task(TASK), RunSettings())
    store = RunStore.take(db, run)
    modelled = TaskFacts("cpu (modelling sm_90)", {}, MeasurementKind.MODELLED, (CaseFacts("default", 1.0, ()),))
    keep_facts(store, modelled)
    keep_facts(store, modelled)
    with pytest.raises(MachineError, match="was judged on cpu"):
        keep_facts(store, replace(modelled, device="NVIDIA H200", kind=MeasurementKind.MEASURED))
    assert store.run().device == modelled.device
    store.release()


def test_a_task_that_cannot_be_judged_ends_the_command_with_2_and_one_sentence(db: Path, tmp_path: Path) -> None:
    task = tmp_path / "broken.py"
    task.write_text(
        "from torch import nn\nclass Model(nn.Module):\n    def forward(self):\n        raise RuntimeError('no')\n"
        "def get_inputs():\n    return []\ndef get_init_inputs():\n    return []\n"
    )
    program = f"from tui.commands import main; main(['--db', {str(db)!r}, 'run', {str(task)!r}, '--headless'])"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1), ended.stderr
    assert ended.stderr.startswith("kernelgrove: the task broken ")


@pytest.mark.slow
def test_a_killed_and_resumed_search_grows_the_tree_of_one_that_was_left_alone(db: Path) -> None:
    trees = []
    for kills in (0, 3):
        run = start_run(db, find_task(TASK), RunSettings(budget=8, seed=5))
        for number in range(1, kills + 1):
            until(lambda run=run, number=number: judged(db, run) >= 2 * number, 120, "a verdict")  # type: ignore[misc]
            kill(engine_of(db, run))
            until(lambda run=run: not overview_of(db, run).engine.alive, what="the end of the engine")  # type: ignore[misc, union-attr]
            resume_run(db, run)
        until(lambda run=run: overview_of(db, run).run.state.ended, 240, "the end of the run")  # type: ignore[misc]
        with Reader(db) as reader:
            trees.append([(c.number, c.parent, c.step, c.idea, c.state, c.time_us) for c in reader.candidates(run)])
    assert trees[0] == trees[1]
