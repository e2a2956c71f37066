"""What people ask of a search from the command line: hints, forced steps, retests, ends, and what was tried."""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path

import pytest

from engine.records import CandidateState, CommandKind, ProposerKind, RunState, Step
from engine.settings import RunSettings, load_settings, parse_run_settings
from engine.store.control import Control
from engine.store.lease import Holder
from engine.store.reader import Reader
from engine.store.run_store import RunStore
from engine.tasks.catalogue import find_task
from tests.engine.store.conftest import grow
from tests.tui.commands.conftest import Call


@pytest.fixture
def run(db: Path) -> int:
    """A run of two structures, the second with two edits, that has used its budget."""
    with Control(db) as control:
        run = control.create_run(find_task("softmax"), RunSettings(budget=4))
    store = RunStore.take(db, run)
    store.set_state(RunState.RUNNING)
    store.task_opened("gpu", "measured", {"baselines": {"eager": 100.0, "bound": 10.0}}, {})
    grow(store, "one\n", time_us=50.0)
    second = grow(store, "two\n", time_us=80.0)
    third = grow(store, "three\n", second, step=Step.LOCAL, time_us=20.0)
    grow(store, "four\n", third, step=Step.LOCAL, time_us=30.0)
    store.set_state(RunState.DONE, "the budget of 4 candidates is used up", ended_by="budget")
    store.release()
    return run


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Engines that were started; none really is."""
    started: list[int] = []

    def launch(_: Path, number: int) -> Holder:
        started.append(number)
        return Holder(number, 1, "here", 4711, "", 0.0, False)

    monkeypatch.setattr("engine.api.launch", launch)
    return started


def test_hints_apply_at_once_and_forced_steps_and_retests_wait_for_an_engine(call: Call, db: Path, run: int) -> None:
    assert call("hint", str(run), "use", "shared", "memory").out == "the hint goes into every proposal from now on\n"
    assert "that grows from 2" in call("hint", str(run), "2", "fewer warps").out
    assert call("hint", str(run), "42").out == "the hint goes into every proposal from now on\n"
    for arguments in (
        ("force", "local", str(run), "3"),
        ("force", "structural", str(run), "0"),
        ("retest", str(run), "1"),
    ):
        outcome = call(*arguments)
        assert (outcome.code, outcome.out) == (
            0,
            f"no engine works on run {run}; this waits for: kernelgrove resume {run}\n",
        )
    with Reader(db) as reader:
        assert reader.hints(run, 4) == ["use shared memory", "fewer warps", "42"]
        forced = [c for c in reader.commands(run) if c.kind is CommandKind.FORCE]
    assert [(command.candidate, command.argument) for command in forced] == [(0, "structural"), (3, "local")]


def test_a_run_whose_end_is_reached_is_not_resumed_for_nothing(
    call: Call, db: Path, run: int, launched: list[int]
) -> None:
    refused = call("resume", str(run))
    assert (refused.code, refused.err) == (
        2,
        "kernelgrove: the budget of 4 candidates is used up; let run 1 go on with: kernelgrove resume 1 --budget N\n",
    )
    assert call("resume", str(run), "--budget", "4").code == 2
    assert launched == []
    assert "goes on with a new engine" in call("resume", str(run), "--budget", "9", "--patience", "3").out
    assert launched == [run]
    with Reader(db) as reader:
        overview = reader.run(run)
    assert overview is not None
    assert (overview.run.budget, overview.run.settings["patience"]) == (9, 3)
    wrong = call("resume", str(run), "--target", "soon")
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)


def test_a_run_with_something_left_to_judge_is_resumed_whatever_its_budget(
    call: Call, db: Path, run: int, launched: list[int], tmp_path: Path
) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("class ModelNew: ...\n")
    assert "candidate 5" in call("add", str(run), "1", str(mine)).out
    assert call("resume", str(run)).code == 0
    assert launched == [run]


def test_the_budget_of_a_run_without_engine_changes_at_once(
    call: Call, db: Path, run: int, launched: list[int]
) -> None:
    assert call("budget", str(run), "9").out == (
        f"the budget is now 9 candidates; let it go on with: kernelgrove resume {run}\n"
    )
    assert call("resume", str(run)).code == 0
    assert launched == [run]


def test_the_structures_that_were_tried_are_listed_with_how_far_they_came(call: Call, run: int) -> None:
    lines = call("status", str(run), "--structures").out.splitlines()
    rows = [line.split() for line in lines if "tried" in line]
    assert [row[0] for row in rows] == ["2", "1"]
    assert " ".join(rows[0]) == "2 3 tried, 3 correct best 5.00x (3) 50% of the bound idea 2"
    document = json.loads(call("status", str(run), "--structures", "--json").out)
    assert [(each["number"], each["members"], each["best"], each["bound"]) for each in document["structures"]] == [
        (2, 3, 3, 0.5),
        (1, 1, 1, 0.2),
    ]


def test_a_machine_that_cannot_judge_is_told_before_a_run_is_made(call: Call, db: Path, tmp_path: Path) -> None:
    outcome = call("run", "softmax", "--detach", "--python", str(tmp_path / "python"))
    assert (outcome.code, outcome.err.count("\n")) == (3, 1)
    assert "there is no interpreter" in outcome.err
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    outcome = call("run", "softmax", "--detach", "--python", str(bare))
    assert (outcome.code, outcome.err) == (
        3,
        f"kernelgrove: {bare} has no torch and triton; install them there, or name another interpreter with --python\n",
    )
    assert not db.exists()


def test_a_search_may_start_from_a_persons_kernel(call: Call, db: Path, launched: list[int], tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("class ModelNew: ...\n")
    assert call("run", "softmax", "--detach", "--start", str(mine)).code == 0
    with Reader(db) as reader:
        (candidate,) = reader.candidates(1)
        assert reader.source(1, 1) == "class ModelNew: ...\n"
        overview = reader.run(1)
    assert (candidate.proposer, candidate.state) == (ProposerKind.HUMAN, CandidateState.QUEUED)
    assert overview is not None
    assert overview.run.settings["start"] is True
    assert call("run", "softmax", "--detach", "--start", "nowhere.py").code == 2


def test_ends_are_read_as_people_write_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = parse_run_settings({"max_time": "1.5h", "until": "07:00", "target": "bound:.9", "device": "cuda:0,2"})
    assert settings.max_time == 5400
    assert settings.until is not None
    assert settings.devices == ("cuda:0", "cuda:2")
    assert parse_run_settings(settings.model_dump()) == settings
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "kernelgrove.toml").write_text(
        '[run]\nuntil = "23:59"\nmax_time = "90s"\n[run.policy]\nname = "beam"\n'
    )
    layered = load_settings(None).run
    assert (layered.max_time, layered.policy.name) == (90, "beam")


def test_what_waits_for_an_engine_can_be_taken_back(call: Call, db: Path, run: int) -> None:
    call("retest", str(run), "1")
    connection = sqlite3.connect(db)
    (command,) = connection.execute("SELECT id FROM commands WHERE kind = 'retest'").fetchone()
    connection.close()
    assert call("retract", str(run), str(command)).out == f"took back command {command} (retest)\n"
