"""What becomes of a candidate before it is queued for the judge, as SQL on an open write transaction."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping, Sequence
from typing import Any

from engine.events import CandidateAdded
from engine.records import CandidateState, ProposerKind, Step
from engine.store.journal import record
from engine.store.moves import move
from engine.store.rows import get_text, put_text


def add(
    connection: sqlite3.Connection,
    run: int,
    parent: int | None,
    step: Step,
    proposer: ProposerKind,
    why: Mapping[str, Any],
) -> int:
    """Writes down that a proposer will be asked, before it is; returns the new candidate's number."""
    now, state = time.time(), CandidateState.PROPOSING
    number, depth = connection.execute(
        "SELECT coalesce(max(number), 0) + 1, 1 + coalesce((SELECT depth FROM candidates WHERE run = ? AND number = ?),"
        " 0) FROM candidates WHERE run = ?",
        (run, parent, run),
    ).fetchone()
    connection.execute(
        "INSERT INTO candidates (run, number, parent, step, proposer, state, depth, created_at, changed_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (run, number, parent, step, proposer, state, depth, now, now),
    )
    connection.execute(
        "INSERT INTO proposals (run, candidate, proposer, state, why, started_at) VALUES (?, ?, ?, 'open', ?, ?)",
        (run, number, proposer, json.dumps(why), now),
    )
    record(connection, run, CandidateAdded(number, parent, step, proposer, state))
    return int(number)


def add_own(connection: sqlite3.Connection, run: int, parent: int | None, source: str, idea: str) -> int:
    """Enters a person's own kernel, which needs no approval and costs no budget; returns its number.

    Raises:
        KeyError: the run has no such parent, or it is pruned.
    """
    now, depth, state = time.time(), 1, CandidateState.QUEUED
    if parent is not None:
        row = connection.execute(
            "SELECT depth, pruned FROM candidates WHERE run = ? AND number = ?", (run, parent)
        ).fetchone()
        if row is None:
            raise KeyError(f"run {run} has no candidate {parent}")
        if row[1]:
            raise KeyError(f"candidate {parent} of run {run} is pruned; restore it first")
        depth = row[0] + 1
    number = connection.execute("SELECT coalesce(max(number), 0) + 1 FROM candidates WHERE run = ?", (run,)).fetchone()[
        0
    ]
    step = Step.STRUCTURAL if parent is None else Step.LOCAL
    connection.execute(
        "INSERT INTO candidates (run, number, parent, step, proposer, state, idea, depth, source_hash,"
        " approved, created_at, changed_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?)",
        (run, number, parent, step, ProposerKind.HUMAN, state, idea, depth, put_text(connection, source), now, now),
    )
    record(connection, run, CandidateAdded(number, parent, step, ProposerKind.HUMAN, state))
    return int(number)


def take_answer(
    connection: sqlite3.Connection,
    run: int,
    number: int,
    source: str,
    idea: str,
    recipe: Mapping[str, Any] | None,
    *,
    gated: bool,
    tried: Sequence[Mapping[str, Any]],
    novelty: float | None,
    structure: str | None,
) -> CandidateState:
    """Takes a proposer's answer; returns the state that the candidate is in afterwards.

    A text that the run already has makes it a duplicate. An answer for a candidate that was abandoned meanwhile
    is kept with its proposal, so that it is not made again.
    """
    source_hash = put_text(connection, source)
    connection.execute(
        "UPDATE proposals SET state = iif(state = 'open', 'answered', state), recipe = ?, response_hash = ?,"
        " request = ?, ended_at = ? WHERE run = ? AND candidate = ? AND response_hash IS NULL",
        (
            json.dumps(recipe) if recipe is not None else None,
            source_hash,
            _request(tried),
            time.time(),
            run,
            number,
        ),
    )
    twin = connection.execute(
        "SELECT min(number) FROM candidates WHERE run = ? AND source_hash = ? AND number != ?",
        (run, source_hash, number),
    ).fetchone()[0]
    if twin is not None:
        state, reason = CandidateState.DUPLICATE, f"the same text as {twin}"
    elif gated:
        state, reason = CandidateState.AWAITING_APPROVAL, ""
    else:
        state, reason = CandidateState.QUEUED, ""
    if not move(connection, run, number, (CandidateState.PROPOSING,), state, reason):
        row = connection.execute("SELECT state FROM candidates WHERE run = ? AND number = ?", (run, number)).fetchone()
        return CandidateState(row[0])
    connection.execute(
        "UPDATE candidates SET source_hash = ?, idea = ?, duplicate_of = ?, approved = ?, novelty = ?,"
        " structure_hash = ? WHERE run = ? AND number = ?",
        (
            source_hash,
            idea,
            twin,
            not gated,
            novelty,
            put_text(connection, structure, packed=True) if structure is not None else None,
            run,
            number,
        ),
    )
    return state


def fail(
    connection: sqlite3.Connection, run: int, number: int, reason: str, tried: Sequence[Mapping[str, Any]]
) -> None:
    """Keeps that the proposer gave nothing usable."""
    move(connection, run, number, (CandidateState.PROPOSING,), CandidateState.FAILED, reason)
    connection.execute(
        "UPDATE proposals SET state = 'failed', failure = ?, request = ?, ended_at = ?"
        " WHERE run = ? AND candidate = ? AND state = 'open'",
        (reason, _request(tried), time.time(), run, number),
    )


def recipes(connection: sqlite3.Connection, run: int) -> dict[int, Mapping[str, Any]]:
    """How each candidate that has a recipe was made."""
    rows = connection.execute(
        "SELECT candidate, recipe FROM proposals WHERE run = ? AND recipe IS NOT NULL ORDER BY id", (run,)
    )
    return {row[0]: json.loads(row[1]) for row in rows}


def tried_recipes(connection: sqlite3.Connection, run: int) -> list[Mapping[str, Any]]:
    """The recipes that proposers tried and could not write."""
    rows = connection.execute(
        "SELECT json_extract(request, '$.tried') FROM proposals WHERE run = ?"
        " AND json_extract(request, '$.tried') IS NOT NULL ORDER BY id",
        (run,),
    )
    return [recipe for row in rows for recipe in json.loads(row[0])]


def structures(connection: sqlite3.Connection, run: int) -> list[str]:
    """What the structural candidates of a run do, each different one once."""
    rows = connection.execute(
        "SELECT DISTINCT structure_hash FROM candidates WHERE run = ? AND structure_hash IS NOT NULL", (run,)
    ).fetchall()
    return [get_text(connection, row[0]) or "" for row in rows]


def why(connection: sqlite3.Connection, run: int, number: int) -> Mapping[str, Any]:
    """Why a candidate was asked for, as it was written down before it was; empty where a person made it."""
    row = connection.execute(
        "SELECT why FROM proposals WHERE run = ? AND candidate = ? ORDER BY id DESC LIMIT 1", (run, number)
    ).fetchone()
    return {} if row is None else dict(json.loads(row[0]))


def _request(tried: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps({"tried": list(tried)} if tried else {})
