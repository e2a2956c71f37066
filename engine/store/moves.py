"""Moves candidates between states, as SQL on an open write transaction, each move with its event."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable

from engine.events import CandidateMoved
from engine.records import CandidateState, RunState
from engine.store.journal import record
from engine.store.ledger import close_calls

WAITING = (CandidateState.PROPOSING, CandidateState.AWAITING_APPROVAL, CandidateState.QUEUED, CandidateState.EVALUATING)
PRUNED_REASON = "pruned"

SUBTREE = (
    "WITH RECURSIVE subtree(number) AS (SELECT :number UNION ALL SELECT candidates.number FROM candidates"
    " JOIN subtree ON candidates.parent = subtree.number WHERE candidates.run = :run) "
)


def move(
    connection: sqlite3.Connection,
    run: int,
    number: int,
    expected: tuple[CandidateState, ...],
    state: CandidateState,
    reason: str,
) -> bool:
    """Moves a candidate if it is in one of the expected states, with its event; returns whether it was."""
    changed = connection.execute(
        f"UPDATE candidates SET state = ?, reason = ?, changed_at = ? WHERE run = ? AND number = ?"
        f" AND state IN ({marks(expected)})",
        (state, reason, time.time(), run, number),
    ).rowcount
    if changed:
        record(connection, run, CandidateMoved(number, state, reason))
    return bool(changed)


def abandon(connection: sqlite3.Connection, run: int, number: int, reason: str) -> None:
    """Takes a candidate's waiting or running work away; what was asked of judge and proposer is closed with it."""
    if not move(connection, run, number, WAITING, CandidateState.ABANDONED, reason):
        return
    void_evaluation(connection, run, number)
    close_calls(connection, run, number)
    connection.execute(
        "UPDATE proposals SET state = 'interrupted', failure = ?, ended_at = ?"
        " WHERE run = ? AND candidate = ? AND state = 'open'",
        (reason, time.time(), run, number),
    )


def ended_reason(state: RunState) -> str:
    """Why the end of a run abandons what waits."""
    return f"run {state}"


def bring_back(connection: sqlite3.Connection, run: int, numbers: Iterable[int], reasons: Iterable[str]) -> list[int]:
    """Lets abandoned work wait again if it was abandoned for one of some reasons and has a source."""
    rows = connection.execute(
        "SELECT candidates.number, approved FROM json_each(?) AS wanted CROSS JOIN candidates"
        " ON candidates.run = ? AND candidates.number = wanted.value WHERE state = ? AND NOT pruned"
        f" AND reason IN ({marks(reasons)}) AND source_hash IS NOT NULL ORDER BY number",
        (str(list(numbers)), run, CandidateState.ABANDONED),
    ).fetchall()
    for number, approved in rows:
        state = CandidateState.QUEUED if approved else CandidateState.AWAITING_APPROVAL
        move(connection, run, number, (CandidateState.ABANDONED,), state, "")
    return [row[0] for row in rows]


def void_evaluation(connection: sqlite3.Connection, run: int, number: int) -> None:
    """Closes an evaluation that came to no verdict."""
    connection.execute(
        "UPDATE evaluations SET state = 'void', ended_at = ? WHERE run = ? AND candidate = ? AND state = 'running'",
        (time.time(), run, number),
    )


def subtree(connection: sqlite3.Connection, run: int, number: int) -> list[int]:
    """The numbers of a candidate and all that grew from it."""
    rows = connection.execute(SUBTREE + "SELECT number FROM subtree", {"run": run, "number": number}).fetchall()
    return [row[0] for row in rows]


def marks(values: Iterable[str]) -> str:
    """Quotes fixed words of our own for an IN list."""
    return ", ".join(f"'{value}'" for value in values)
