"""How a run moves between its states, as SQL on an open write transaction."""

from __future__ import annotations

import sqlite3
import time

from engine.events import RunChanged
from engine.records import CandidateState, ProposerKind, RunState
from engine.store.journal import record
from engine.store.moves import WAITING, abandon, bring_back, ended_reason, marks


def enter(connection: sqlite3.Connection, run: int, state: RunState, reason: str, ended_by: str | None) -> None:
    """Moves a run; one that ends gets its time, its cause, and no waiting work, which comes back when it goes on."""
    now = time.time()
    before = RunState(connection.execute("SELECT state FROM runs WHERE id = ?", (run,)).fetchone()[0])
    connection.execute(
        "UPDATE runs SET state = ?, reason = ?, ended_by = ?, ended_at = ?,"
        " started_at = coalesce(started_at, ?) WHERE id = ?",
        (state, reason or None, ended_by, now if state.ended else None, now, run),
    )
    record(connection, run, RunChanged(state, reason))
    if before.ended and not state.ended:
        reasons = [ended_reason(each) for each in RunState if each.ended]
        bring_back(connection, run, _in_states(connection, run, (CandidateState.ABANDONED,)), reasons)
    if state in (RunState.DONE, RunState.STOPPED):
        for number in _in_states(connection, run, WAITING):
            abandon(connection, run, number, ended_reason(state))


def person_waits(connection: sqlite3.Connection, run: int) -> bool:
    """Whether a person has entered or wants tested what is not judged yet."""
    row = connection.execute(
        "SELECT 1 FROM candidates WHERE run = ? AND NOT pruned AND (retest OR (state = ? AND proposer = ?)) LIMIT 1",
        (run, CandidateState.QUEUED, ProposerKind.HUMAN),
    ).fetchone()
    return row is not None


def _in_states(connection: sqlite3.Connection, run: int, states: tuple[CandidateState, ...]) -> list[int]:
    rows = connection.execute(
        f"SELECT number FROM candidates WHERE run = ? AND state IN ({marks(states)}) ORDER BY number", (run,)
    ).fetchall()
    return [row[0] for row in rows]
