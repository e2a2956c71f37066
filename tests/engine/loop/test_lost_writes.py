"""An engine that dies at any write, on a full disk or behind a lock: nothing committed is lost or done twice."""

from __future__ import annotations

import os
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from engine.api import resume_run, start_run
from engine.loop.search_loop import SearchLoop
from engine.records import Candidate, CandidateState, Evaluation, RunState
from engine.settings import RunSettings
from engine.store.lease import leased
from engine.store.reader import Reader
from engine.store.run_store import RunStore
from engine.tasks.catalogue import find_task
from tests.engine.loop.processes import alive, descendants, kill, until
from tests.engine.loop.scripted import ScriptedJudge, ScriptedProposer, make_run

BUDGET = 4

Tree = list[tuple[object, ...]]


class Died(BaseException):
    """The engine is gone, as after kill -9: nothing of it does anything any more."""


class TalkativeJudge(ScriptedJudge):
    """Leaves a log of several pages with each verdict, so that a disk fills up."""

    async def evaluate(self, source: str, **more: Any) -> Evaluation:
        evaluation = await super().evaluate(source, **more)
        return replace(evaluation, log=Random(source).randbytes(12_000).hex())


def tree(candidates: list[Candidate]) -> Tree:
    return [(c.number, c.parent, c.step, c.idea, c.state, c.verdict, c.time_us) for c in candidates]


def evaluations(db: Path) -> dict[int, tuple[int, str]]:
    """The finished evaluations by their ids."""
    connection = sqlite3.connect(db)
    rows = connection.execute("SELECT id, candidate, document FROM evaluations WHERE state = 'done'").fetchall()
    connection.close()
    return {row[0]: (row[1], row[2]) for row in rows}


def sound(db: Path) -> bool:
    connection = sqlite3.connect(db)
    answers = [connection.execute(f"PRAGMA {check}").fetchall() for check in ("integrity_check", "foreign_key_check")]
    connection.close()
    return answers == [[("ok",)], []]


def abandon_lease(db: Path) -> None:
    """Makes the lease's holder a process that is gone: this one only plays engines."""
    connection = sqlite3.connect(db)
    with connection:
        connection.execute("UPDATE leases SET process_started = 'long ago'")
    connection.close()


async def search(db: Path, run: int) -> Tree:
    """One engine's life, which may be cut short."""
    abandon_lease(db)
    store = RunStore.take(db, run)
    try:
        if store.run().state is not RunState.RUNNING:
            store.set_state(RunState.RUNNING)
        settings = RunSettings.model_validate(store.run().settings)
        await SearchLoop(store, [TalkativeJudge()], ScriptedProposer(99, 99), settings).run()
        assert store.run().state is RunState.DONE
        return tree(store.candidates())
    finally:
        store.close()


@contextmanager
def dying_at(monkeypatch: pytest.MonkeyPatch, write: int, *, after: bool) -> Iterator[list[int]]:
    """Lets the engine die at its n-th write, before anything of it is done or right after it is committed."""
    done = [0]

    @contextmanager
    def fatal(self: RunStore) -> Iterator[sqlite3.Connection]:
        done[0] += 1
        if done[0] >= write and not after:
            raise Died
        with leased(self._db, self.run_id, self.epoch) as connection:
            yield connection
        if done[0] >= write and after:
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(RunStore, "_write", fatal)
        yield done


@pytest.mark.parametrize("after", [False, True], ids=["before it is committed", "once it is committed"])
async def test_a_death_at_any_write_changes_nothing_of_the_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    whole = tmp_path / "whole.db"
    with dying_at(monkeypatch, 10**6, after=False) as writes:
        expected = await search(whole, make_run(whole, budget=BUDGET, seed=7))
    assert len(expected) == BUDGET
    for write in range(1, writes[0] + 1):
        db = tmp_path / f"cut at {write}.db"
        run = make_run(db, budget=BUDGET, seed=7)
        with dying_at(monkeypatch, write, after=after), pytest.raises(Died):
            await search(db, run)
        before = evaluations(db)
        found = await search(db, run) if _state(db, run) is not RunState.DONE else expected
        assert found == expected, f"died at write {write}"
        kept = evaluations(db)
        assert before.items() <= kept.items()
        assert sorted(candidate for candidate, _ in kept.values()) == list(range(1, BUDGET + 1))
    assert sound(db)


def _state(db: Path, run: int) -> RunState:
    with Reader(db) as reader:
        overview = reader.run(run)
    assert overview is not None
    return overview.run.state


@pytest.mark.parametrize("room", [0, 1, 3, 6, 9, 12, 16, 20])
async def test_a_full_disk_ends_the_engine_and_costs_nothing_that_was_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    whole, db = tmp_path / "whole.db", tmp_path / "full.db"
    expected = await search(whole, make_run(whole, budget=BUDGET, seed=7))
    run = make_run(db, budget=BUDGET, seed=7)
    take = RunStore.take

    def on_a_small_disk(path: Path, number: int) -> RunStore:
        store = take(path, number)
        (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
        store._connection.execute(f"PRAGMA max_page_count = {pages + room}")
        return store

    with monkeypatch.context() as patch:
        patch.setattr(RunStore, "take", on_a_small_disk)
        with pytest.raises(sqlite3.OperationalError, match="full"):
            await search(db, run)
    assert sound(db)
    before = evaluations(db)
    assert await search(db, run) == expected
    assert before.items() <= evaluations(db).items()


async def test_a_lock_that_stays_ends_the_engine_and_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, db = tmp_path / "whole.db", tmp_path / "locked.db"
    expected = await search(whole, make_run(whole, budget=BUDGET, seed=7))
    run = make_run(db, budget=BUDGET, seed=7)
    other = sqlite3.connect(db, isolation_level=None)
    evaluated = RunStore.evaluated

    def behind_a_lock(store: RunStore, *arguments: object) -> bool:
        if len(evaluations(db)) == 2:
            store._connection.execute("PRAGMA busy_timeout = 50")
            other.execute("BEGIN IMMEDIATE")
        return evaluated(store, *arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(RunStore, "evaluated", behind_a_lock)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            try:
                await search(db, run)
            finally:
                other.execute("ROLLBACK")
                other.close()
    assert len(evaluations(db)) == 2
    assert await search(db, run) == expected


# Real engines


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "runs.db"
    yield path
    with Reader(path) as reader:
        for overview in reader.runs():
            if overview.engine is not None and overview.engine.alive:
                kill(overview.engine.pid)


def engine_of(db: Path, run: int) -> int:
    with Reader(db) as reader:
        overview = reader.run(run)
    assert overview is not None
    assert overview.engine is not None
    return overview.engine.pid


def judged(db: Path, run: int) -> int:
    with Reader(db) as reader:
        return sum(candidate.state is CandidateState.EVALUATED for candidate in reader.candidates(run))


@pytest.mark.slow
def test_an_engine_whose_disk_fills_up_leaves_no_process_and_is_resumed(db: Path) -> None:
    run = start_run(db, find_task("swiglu"), RunSettings(budget=6))
    pid = engine_of(db, run)
    until(lambda: judged(db, run) >= 2, 120, "two verdicts")
    below = descendants(pid)
    size = max(path.stat().st_size for path in db.parent.glob("runs.db*"))
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, size))
    until(lambda: not alive({pid} | below), 60, "the end of all processes")
    assert sound(db)
    before = evaluations(db)
    assert len(before) >= 2
    resume_run(db, run)
    until(lambda: _state(db, run).ended, 240, "the end of the run")
    assert _state(db, run) is RunState.DONE
    assert before.items() <= evaluations(db).items()
    candidates = [candidate for candidate, _ in evaluations(db).values()]
    assert len(candidates) == len(set(candidates))


@pytest.mark.slow
def test_processes_below_the_engine_that_are_killed_cost_no_verdict(db: Path) -> None:
    run = start_run(db, find_task("swiglu"), RunSettings(budget=8))
    pid = engine_of(db, run)
    until(lambda: judged(db, run) >= 1, 120, "a first verdict")
    for kills in range(4):
        wanted = judged(db, run) + 1
        below = sorted(descendants(pid))
        assert below
        os.kill(below[kills * (len(below) - 1) // 3], 9)
        until(lambda wanted=wanted: judged(db, run) >= wanted or _state(db, run).ended, 120, "another verdict")  # type: ignore[misc]
    until(lambda: _state(db, run).ended, 240, "the end of the run")
    with Reader(db) as reader:
        overview = reader.run(run)
        assert overview is not None
        assert overview.run.state is RunState.DONE, overview.run.reason
        assert overview.judged == 8
