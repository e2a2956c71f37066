"""Turns rows into records and records into JSON; the one place that knows both."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from engine.events import RecordedEvent, from_json
from engine.records import (
    Candidate,
    CandidateState,
    Case,
    CaseResult,
    Check,
    Command,
    CommandKind,
    CommandState,
    Evaluation,
    KernelResources,
    Measurement,
    MeasurementKind,
    Numerics,
    ProposerKind,
    Run,
    RunState,
    Step,
    Task,
    Verdict,
)

RUN_QUERY = (
    "SELECT runs.id, runs.name, tasks.name AS task, runs.state, runs.settings, runs.budget, runs.seed, runs.device,"
    " runs.facts, runs.best, runs.created_at, runs.started_at, runs.ended_at, runs.ended_by, runs.reason,"
    " runs.active_seconds FROM runs JOIN tasks ON tasks.id = runs.task"
)


def text_hash(body: str) -> str:
    """The name of a text: its SHA-256 in hexadecimal."""
    return hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()


def put_text(connection: sqlite3.Connection, body: str, *, packed: bool = False) -> str:
    """Stores a text once and returns its hash; needs an open transaction.

    What is `packed` is compressed, unless it stands there as it is already. What is not can be read by any SQLite
    browser, whoever stored it first.
    """
    key = text_hash(body)
    if packed:
        small = zlib.compress(body.encode("utf-8", "surrogatepass"))
        connection.execute("INSERT OR IGNORE INTO texts (hash, body) VALUES (?, ?)", (key, small))
    else:
        connection.execute(
            "INSERT INTO texts (hash, body) VALUES (?, ?)"
            " ON CONFLICT (hash) DO UPDATE SET body = excluded.body WHERE typeof(body) = 'blob'",
            (key, body),
        )
    return key


def get_text(connection: sqlite3.Connection, key: str | None) -> str | None:
    """Reads a stored text."""
    if key is None:
        return None
    row = connection.execute("SELECT body FROM texts WHERE hash = ?", (key,)).fetchone()
    if row is None:
        return None
    return zlib.decompress(row[0]).decode("utf-8", "surrogatepass") if isinstance(row[0], bytes) else str(row[0])


def run_from(row: sqlite3.Row) -> Run:
    """A run from a row of `RUN_QUERY`."""
    settings: dict[str, Any] = json.loads(row["settings"])
    settings["budget"] = row["budget"]
    return Run(
        id=row["id"],
        name=row["name"],
        task=row["task"],
        state=RunState(row["state"]),
        settings=settings,
        created_at=row["created_at"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        ended_by=row["ended_by"],
        active_seconds=row["active_seconds"],
        device=row["device"],
        reason=row["reason"],
        best=row["best"],
        facts=json.loads(row["facts"]) if row["facts"] else {},
    )


def candidate_from(row: sqlite3.Row) -> Candidate:
    """A candidate from a row of its table."""
    return Candidate(
        run=row["run"],
        number=row["number"],
        parent=row["parent"],
        step=Step(row["step"]),
        proposer=ProposerKind(row["proposer"]),
        state=CandidateState(row["state"]),
        idea=row["idea"],
        depth=row["depth"],
        source_hash=row["source_hash"],
        verdict=Verdict(row["verdict"]) if row["verdict"] else None,
        reason=row["reason"],
        labels=tuple(json.loads(row["labels"])),
        time_us=row["time_us"],
        speedup=row["speedup"],
        reward=row["reward"],
        duplicate_of=row["duplicate_of"],
        novelty=row["novelty"],
        pruned=bool(row["pruned"]),
        pinned=bool(row["pinned"]),
        retest=bool(row["retest"]),
        created_at=row["created_at"],
        changed_at=row["changed_at"],
    )


def command_from(row: sqlite3.Row) -> Command:
    """A command from a row of its table."""
    return Command(
        id=row["id"],
        run=row["run"],
        kind=CommandKind(row["kind"]),
        candidate=row["candidate"],
        argument=row["argument"],
        state=CommandState(row["state"]),
        answer=row["answer"],
        author=row["author"],
        created_at=row["created_at"],
        answered_at=row["answered_at"],
    )


def events_from(rows: Iterable[sqlite3.Row]) -> list[RecordedEvent]:
    """Events from rows of their table; kinds that a newer version wrote are left out."""
    read = ((row, from_json(row["kind"], row["body"])) for row in rows)
    return [RecordedEvent(row["id"], row["run"], row["at"], event) for row, event in read if event is not None]


def task_id_of(connection: sqlite3.Connection, task: Task) -> int | None:
    """The number of a stored task; None where it is not stored."""
    row = connection.execute(
        "SELECT id FROM tasks WHERE name = ? AND source_hash = ?", (task.name, text_hash(task.source))
    ).fetchone()
    return None if row is None else int(row[0])


def task_from(connection: sqlite3.Connection, task_id: int) -> Task:
    """Reads a stored task with its cases."""
    row = connection.execute("SELECT * FROM tasks WHERE id = ?", (task_id,)).fetchone()
    cases = connection.execute("SELECT * FROM cases WHERE task = ? ORDER BY position", (task_id,)).fetchall()
    return Task(
        name=row["name"],
        family=row["family"],
        format=row["format"],
        path=row["path"],
        source=get_text(connection, row["source_hash"]) or "",
        cases=tuple(
            Case(
                case["name"],
                case["weight"],
                json.loads(case["overrides"]),
                json.loads(case["small_overrides"]),
                case["atol"],
                case["rtol"],
            )
            for case in cases
        ),
    )


def evaluation_to_json(evaluation: Evaluation) -> str:
    """Writes an evaluation, without its log, as one JSON document."""
    document = asdict(evaluation)
    del document["log"]
    return json.dumps(document, separators=(",", ":"))


def evaluation_from_json(document: str, log: str = "") -> Evaluation:
    """Reads an evaluation back."""
    values: dict[str, Any] = json.loads(document)
    numerics = values["numerics"]
    return Evaluation(
        **{
            **values,
            "verdict": Verdict(values["verdict"]),
            "labels": tuple(values["labels"]),
            "numerics": Numerics(**numerics) if numerics else None,
            "checks": tuple(Check(**check) for check in values["checks"]),
            "cases": tuple(_case_result(case) for case in values["cases"]),
            "static": tuple(KernelResources(**kernel) for kernel in values["static"]),
            "speedup_ci95": {name: tuple(ends) for name, ends in values.get("speedup_ci95", {}).items()},
            "log": log,
        }
    )


def _case_result(values: Mapping[str, Any]) -> CaseResult:
    measurement = values["measurement"]
    if measurement:
        measurement = Measurement(
            **{
                **measurement,
                "kind": MeasurementKind(measurement["kind"]),
                "ci95_us": tuple(measurement["ci95_us"]),
            }
        )
    return CaseResult(**{**values, "verdict": Verdict(values["verdict"]), "measurement": measurement})
