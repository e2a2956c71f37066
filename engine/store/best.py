"""Which candidate of a run is best, as SQL on an open write transaction.

A candidate becomes best only if its time is clearly lower: the upper end of its 95% interval lies below the
lower end of the present best's. So neither noise nor an equal time changes the rank.
"""

from __future__ import annotations

import math
import sqlite3

from engine.events import BestChanged
from engine.records import INELIGIBLE_LABELS, CandidateState, Evaluation, Verdict
from engine.store.journal import record
from engine.store.moves import marks


def refresh_best(connection: sqlite3.Connection, run: int) -> None:
    """Works out the best eligible candidate anew and tells of it if it changed."""
    allowed, before = connection.execute(
        "SELECT coalesce(json_extract(settings, '$.allow'), '[]'), best FROM runs WHERE id = ?", (run,)
    ).fetchone()
    present = None if before is None else _fastest(connection, run, allowed, "number = ?", before)
    if present is None:
        row = _fastest(connection, run, allowed, "TRUE")
    else:
        # The first term says nothing new, but it lets the index on times find the few rows that there are.
        clearly = "time_us < ? AND coalesce(high_us, time_us) < ?"
        row = _fastest(connection, run, allowed, clearly, present[3], present[3])
        if row is None:
            return
    best = None if row is None else row[0]
    if best == before:
        return
    connection.execute("UPDATE runs SET best = ? WHERE id = ?", (best, run))
    record(connection, run, BestChanged(None) if row is None else BestChanged(row[0], row[1], row[2]))


def _fastest(
    connection: sqlite3.Connection, run: int, allowed: str, condition: str, *values: float | int | None
) -> sqlite3.Row | None:
    """Number, time, speedup and lower end of the fastest eligible candidate that meets a condition."""
    found: sqlite3.Row | None = connection.execute(
        "SELECT number, time_us, speedup, coalesce(low_us, time_us) FROM candidates"
        f" WHERE run = ? AND state = '{CandidateState.EVALUATED}' AND verdict = '{Verdict.CORRECT}'"
        f" AND time_us IS NOT NULL AND NOT pruned AND ({condition})"
        " AND NOT EXISTS (SELECT 1 FROM json_each(candidates.labels) AS label"
        f" WHERE label.value IN ({marks(sorted(INELIGIBLE_LABELS))}) AND label.value NOT IN"
        " (SELECT value FROM json_each(?)))"
        " ORDER BY time_us, number LIMIT 1",
        (run, *values, allowed),
    ).fetchone()
    return found


def interval_us(evaluation: Evaluation) -> tuple[float, float] | None:
    """The 95% interval of an evaluation's overall time: the weighted geometric mean of its cases' ends."""
    if evaluation.time_us is None or not evaluation.cases:
        return None
    ends = [(case.weight, case.measurement.ci95_us) for case in evaluation.cases if case.measurement is not None]
    if len(ends) != len(evaluation.cases) or any(low <= 0 for _, (low, _) in ends):
        return None
    if len(ends) == 1:
        return ends[0][1]
    total = math.fsum(weight for weight, _ in ends)
    low, high = (
        math.exp(math.fsum(weight * math.log(interval[end]) for weight, interval in ends) / total) for end in (0, 1)
    )
    return low, high
