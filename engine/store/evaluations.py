"""What becomes of a candidate before the judge, as SQL on an open write transaction."""

from __future__ import annotations

import json
import sqlite3
import time

from engine.events import CandidateEvaluated, CandidateMoved
from engine.records import CandidateState, Evaluation, Verdict
from engine.store.best import interval_us, refresh_best
from engine.store.journal import record
from engine.store.moves import move, void_evaluation
from engine.store.rows import evaluation_to_json, put_text


def claim(connection: sqlite3.Connection, run: int, epoch: int, number: int) -> bool:
    """Takes a queued candidate, or one that is to be judged again; returns whether it was there to take."""
    queued = (CandidateState.QUEUED,)
    if not move(connection, run, number, queued, CandidateState.EVALUATING, "") and not _again(connection, run, number):
        return False
    connection.execute("UPDATE candidates SET attempts = attempts + 1 WHERE run = ? AND number = ?", (run, number))
    connection.execute(
        "INSERT INTO evaluations (run, candidate, epoch, state, started_at) VALUES (?, ?, ?, 'running', ?)",
        (run, number, epoch, time.time()),
    )
    return True


def _again(connection: sqlite3.Connection, run: int, number: int) -> bool:
    """Whether a judged candidate waits for another test."""
    row = connection.execute(
        "SELECT 1 FROM candidates WHERE run = ? AND number = ? AND state = ? AND retest AND NOT pruned",
        (run, number, CandidateState.EVALUATED),
    ).fetchone()
    return row is not None


def keep_verdict(
    connection: sqlite3.Connection, run: int, number: int, evaluation: Evaluation, speedup: float | None,
    reward: float | None,
) -> bool:  # fmt: skip
    """Keeps a verdict with its measurements; returns whether it still counted.

    A correct candidate whose compiled code and launches equal those of an earlier one becomes its duplicate.
    One that was judged again keeps its place.
    """
    again = _again(connection, run, number)
    twin = None if again else _twin(connection, run, number, evaluation)
    state = CandidateState.EVALUATED if twin is None else CandidateState.DUPLICATE
    reason = evaluation.reason if twin is None else f"compiles to the same code as {twin}"
    low_us, high_us = interval_us(evaluation) or (None, None)
    changed = connection.execute(
        "UPDATE candidates SET state = ?, verdict = ?, reason = ?, labels = ?, time_us = ?, low_us = ?, high_us = ?,"
        " speedup = ?, reward = ?, fingerprint = ?, duplicate_of = ?, retest = 0, changed_at = ?"
        " WHERE run = ? AND number = ? AND state = ?",
        (
            state,
            evaluation.verdict,
            reason,
            json.dumps(evaluation.labels),
            evaluation.time_us,
            low_us,
            high_us,
            speedup,
            None if twin else reward,
            evaluation.fingerprint,
            twin,
            time.time(),
            run,
            number,
            CandidateState.EVALUATED if again else CandidateState.EVALUATING,
        ),
    ).rowcount
    if not changed:
        void_evaluation(connection, run, number)
        return False
    _keep_document(connection, run, number, evaluation)
    if twin is None:
        record(connection, run, CandidateEvaluated(number, evaluation.verdict, reason, evaluation.time_us, speedup))
    else:
        record(connection, run, CandidateMoved(number, state, reason))
    refresh_best(connection, run)
    return True


def _twin(connection: sqlite3.Connection, run: int, number: int, evaluation: Evaluation) -> int | None:
    if not (evaluation.correct and evaluation.fingerprint):
        return None
    # SQLite would walk the whole run in the order of its numbers, to find the lowest one first.
    row = connection.execute(
        "SELECT min(number) FROM candidates INDEXED BY candidates_by_fingerprint"
        " WHERE run = ? AND fingerprint = ? AND number != ?"
        " AND verdict = ? AND state = ?",
        (run, evaluation.fingerprint, number, Verdict.CORRECT, CandidateState.EVALUATED),
    ).fetchone()
    return None if row[0] is None else int(row[0])


def fingerprints(connection: sqlite3.Connection, run: int) -> set[str]:
    """The fingerprints that a candidate would be the timed twin of another by."""
    rows = connection.execute(
        "SELECT DISTINCT fingerprint FROM candidates WHERE run = ? AND fingerprint IS NOT NULL"
        " AND time_us IS NOT NULL AND verdict = ? AND state = ?",
        (run, Verdict.CORRECT, CandidateState.EVALUATED),
    )
    return {row[0] for row in rows}


def give_up_retest(connection: sqlite3.Connection, run: int, number: int) -> None:
    """Leaves a judged candidate with the verdict it has: the machine could not judge it again."""
    connection.execute(
        "UPDATE candidates SET retest = 0, changed_at = ? WHERE run = ? AND number = ?", (time.time(), run, number)
    )
    void_evaluation(connection, run, number)


def put_back(connection: sqlite3.Connection, run: int) -> None:
    """Queues again what was being judged; what was being judged again still waits for that."""
    rows = connection.execute(
        "SELECT DISTINCT candidate FROM evaluations WHERE run = ? AND state = 'running'", (run,)
    ).fetchall()
    for (number,) in rows:
        move(connection, run, number, (CandidateState.EVALUATING,), CandidateState.QUEUED, "")
        void_evaluation(connection, run, number)
        connection.execute("UPDATE candidates SET attempts = attempts - 1 WHERE run = ? AND number = ?", (run, number))


def _keep_document(connection: sqlite3.Connection, run: int, number: int, evaluation: Evaluation) -> None:
    row = connection.execute(
        "SELECT max(id) FROM evaluations WHERE run = ? AND candidate = ? AND state = 'running'", (run, number)
    ).fetchone()
    connection.execute(
        "UPDATE evaluations SET state = 'done', verdict = ?, document = ?, log_hash = ?, ended_at = ? WHERE id = ?",
        (
            evaluation.verdict,
            evaluation_to_json(evaluation),
            put_text(connection, evaluation.log) if evaluation.log else None,
            time.time(),
            row[0],
        ),
    )
    connection.executemany(
        "INSERT INTO measurements (evaluation, case_name, kind, time_us, low_us, high_us, mode, cache, detail)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                row[0],
                case.name,
                case.measurement.kind,
                case.measurement.time_us,
                *case.measurement.ci95_us,
                case.measurement.mode,
                case.measurement.cache,
                json.dumps(case.measurement.detail),
            )
            for case in evaluation.cases
            if case.measurement is not None
        ],
    )
