"""The ledger of a run's requests to models: what was sent, what came back, what it cost.

Money is reserved when a request begins and settled when it ends; a request that was cut keeps its reserve charged.
What models say is kept as it is written, so that a screen can show it. Nothing here talks to a model.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass

from sqlite_utils import Database

from engine.records import CallFailure, CallState, ModelCall, Spending, Usage
from engine.store import lease
from engine.store.rows import get_text, put_text
from skills.memory import SkillMemory
from skills.records import Skill

Messages = Sequence[tuple[str, Sequence[str]]]
"""A prompt: for each message its role and the parts whose concatenation is its text."""

_INLINE = 80
"""Parts up to this many characters are kept in the listing of a prompt; longer ones are texts of their own, once."""


class OverBudget(Exception):
    """The run's money does not cover the request; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class CallOrder:
    """A request about to be made. `reserve_usd` is the most it can cost, None where the price is not known."""

    candidate: int
    model: str
    destination: str
    template: str
    version: int
    attempt: int
    messages: Messages
    skills: Sequence[Skill]
    dropped: Sequence[str]
    reserve_usd: float | None


@dataclass(frozen=True, slots=True)
class RuleUse:
    """Requests that a revision of a rule went into; `price` is that of a million prompt tokens, None if not known."""

    revision: int
    price: float | None
    requests: int


class Ledger:
    """The engine's side of the ledger; to be used from the thread of its run store."""

    def __init__(self, db: Database, run: int, epoch: int) -> None:
        self._db = db
        self._run = run
        self._epoch = epoch

    def _write(self) -> AbstractContextManager[sqlite3.Connection]:
        return lease.leased(self._db, self._run, self._epoch)

    def begin(self, order: CallOrder, max_usd: float | None = None) -> int:
        """Writes down a request before it is sent and reserves its money; returns its number.

        Raises:
            OverBudget: what is spent and reserved leaves too little of `max_usd`; nothing is written then.
        """
        with self._write() as connection:
            if max_usd is not None and order.reserve_usd is not None:
                spent = spending_of(connection, self._run)
                left = max_usd - spent.usd - spent.reserved_usd
                if order.reserve_usd > left:
                    raise OverBudget(
                        f"the request may cost ${order.reserve_usd:.4f} and ${max(left, 0):.4f} is left of "
                        f"${max_usd:g}; raise --max-cost, or ask for less with max_output_tokens"
                    )
            (proposal,) = connection.execute(
                "SELECT max(id) FROM proposals WHERE run = ? AND candidate = ?", (self._run, order.candidate)
            ).fetchone()
            cursor = connection.execute(
                "INSERT INTO model_calls (run, candidate, proposal, state, model, destination, template, version,"
                " attempt, prompt_hash, skills, dropped, reserved_usd, started_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    self._run,
                    order.candidate,
                    proposal,
                    CallState.OPEN,
                    order.model,
                    order.destination,
                    order.template,
                    order.version,
                    order.attempt,
                    put_prompt(connection, order.messages),
                    json.dumps([[skill.name, skill.revision] for skill in order.skills]),
                    json.dumps(list(order.dropped)),
                    order.reserve_usd,
                    time.time(),
                ),
            )
            # Rules from a file of the run's own are not in the memory.
            SkillMemory(connection).record_uses(self._run, proposal, [skill for skill in order.skills if skill.id])
            assert cursor.lastrowid is not None
            return cursor.lastrowid

    def write(self, call: int, text: str) -> None:
        """Keeps what has been written of an answer so far; a database that is busy gets it with the next piece."""
        with contextlib.suppress(sqlite3.OperationalError), self._write() as connection:
            connection.execute(
                "UPDATE model_calls SET partial = ? WHERE id = ? AND state = ?", (text, call, CallState.OPEN)
            )

    def settle(
        self,
        call: int,
        text: str,
        usage: Usage,
        cost_usd: float | None,
        failure: CallFailure | None = None,
        detail: str = "",
    ) -> None:
        """Ends a request with what it brought and cost, unless it was ended already."""
        state = CallState.ANSWERED if failure is None else CallState.FAILED
        with self._write() as connection:
            connection.execute(
                "UPDATE model_calls SET state = ?, partial = '', response_hash = ?, usage = ?, tokens_in = ?,"
                " tokens_out = ?, tokens_reasoning = ?, cost_usd = ?, failure = ?, detail = ?, ended_at = ?"
                " WHERE id = ? AND state = ?",
                (
                    state,
                    put_text(connection, text, packed=True) if text else None,
                    json.dumps(asdict(usage)),
                    usage.input,
                    usage.output,
                    usage.reasoning,
                    cost_usd,
                    failure,
                    detail,
                    time.time(),
                    call,
                    CallState.OPEN,
                ),
            )

    def interrupt(self, call: int, text: str) -> None:
        """Ends a request that nobody waits for any more; its reserve counts as spent."""
        with self._write() as connection:
            connection.execute(
                "UPDATE model_calls SET partial = ? WHERE id = ? AND state = ?", (text, call, CallState.OPEN)
            )
            _interrupt(connection, "id = ?", (call,))

    def spending(self) -> Spending:
        """What the run has spent and reserved so far."""
        return spending_of(self._db.conn, self._run)


def close_calls(connection: sqlite3.Connection, run: int, candidate: int | None = None) -> None:
    """Ends the open requests of a run, or of one candidate, as interrupted; needs an open write transaction."""
    if candidate is None:
        _interrupt(connection, "run = ?", (run,))
    else:
        _interrupt(connection, "run = ? AND candidate = ?", (run, candidate))


def _interrupt(connection: sqlite3.Connection, where: str, values: tuple[int, ...]) -> None:
    rows = connection.execute(
        f"SELECT id, partial FROM model_calls WHERE {where} AND state = ?", (*values, CallState.OPEN)
    ).fetchall()
    for call, partial in rows:
        connection.execute(
            "UPDATE model_calls SET state = ?, partial = '', response_hash = ?, cost_usd = reserved_usd, detail = ?,"
            " ended_at = ? WHERE id = ?",
            (
                CallState.INTERRUPTED,
                put_text(connection, partial, packed=True) if partial else None,
                "cut off before its end; what was reserved for it counts as spent",
                time.time(),
                call,
            ),
        )


def spending_of(connection: sqlite3.Connection, run: int) -> Spending:
    """What a run has spent and reserved so far."""
    rows = connection.execute(
        "SELECT state, failure, count(*), sum(tokens_in), sum(tokens_out), sum(tokens_reasoning),"
        " coalesce(sum(cost_usd), 0), coalesce(sum(reserved_usd), 0), sum(reserved_usd IS NULL)"
        " FROM model_calls WHERE run = ? GROUP BY state, failure",
        (run,),
    ).fetchall()
    causes = {
        str(row[1]) if row[1] else str(row[0]): row[2]
        for row in rows
        if row[0] in (CallState.FAILED, CallState.INTERRUPTED)
    }
    return Spending(
        calls=sum(row[2] for row in rows),
        tokens_in=sum(row[3] for row in rows),
        tokens_out=sum(row[4] for row in rows),
        tokens_reasoning=sum(row[5] for row in rows),
        usd=sum(row[6] for row in rows),
        reserved_usd=sum(row[7] for row in rows if row[0] == CallState.OPEN),
        unpriced=sum(row[8] for row in rows),
        failures=causes,
    )


def rule_uses(connection: sqlite3.Connection, name: str) -> list[RuleUse]:
    """How many requests each revision of a rule went into, by the price of the run they were made for."""
    rows = connection.execute(
        "SELECT json_extract(rule.value, '$[1]'), json_extract(runs.settings, '$.llm.price.input'), count(*)"
        " FROM model_calls JOIN json_each(model_calls.skills) AS rule JOIN runs ON runs.id = model_calls.run"
        " WHERE json_extract(rule.value, '$[0]') = ? GROUP BY 1, 2 ORDER BY 1, 2",
        (name,),
    ).fetchall()
    return [RuleUse(*row) for row in rows]


# Reading


def calls_of(connection: sqlite3.Connection, run: int, candidate: int) -> list[ModelCall]:
    """The requests made for a candidate, oldest first."""
    rows = connection.execute(
        "SELECT * FROM model_calls WHERE run = ? AND candidate = ? ORDER BY id", (run, candidate)
    ).fetchall()
    return [_call_from(row) for row in rows]


def _call_from(row: sqlite3.Row) -> ModelCall:
    return ModelCall(
        id=row["id"],
        run=row["run"],
        candidate=row["candidate"],
        state=CallState(row["state"]),
        model=row["model"],
        destination=row["destination"],
        template=row["template"],
        version=row["version"],
        attempt=row["attempt"],
        usage=Usage(**json.loads(row["usage"])),
        reserved_usd=row["reserved_usd"],
        cost_usd=row["cost_usd"],
        failure=CallFailure(row["failure"]) if row["failure"] else None,
        detail=row["detail"],
        skills=tuple((name, revision) for name, revision in json.loads(row["skills"])),
        dropped=tuple(json.loads(row["dropped"])),
        started_at=row["started_at"],
        ended_at=row["ended_at"],
    )


def prompt_of(connection: sqlite3.Connection, call: int) -> list[tuple[str, str]]:
    """The messages that a request sent, each with its role, exactly as they were sent."""
    row = connection.execute("SELECT prompt_hash FROM model_calls WHERE id = ?", (call,)).fetchone()
    listing = json.loads(get_text(connection, row[0] if row else None) or "[]")
    return [(role, "".join(_part(connection, part) for part in parts)) for role, parts in listing]


def response_of(connection: sqlite3.Connection, call: int) -> str:
    """What a request brought, or what has been written of it so far."""
    row = connection.execute("SELECT partial, response_hash FROM model_calls WHERE id = ?", (call,)).fetchone()
    return "" if row is None else row[0] or get_text(connection, row[1]) or ""


def put_prompt(connection: sqlite3.Connection, messages: Messages) -> str:
    """Stores a prompt and returns the hash of its listing; parts that other prompts share are stored once."""
    listing = [
        [role, [part if len(part) <= _INLINE else {"text": put_text(connection, part, packed=True)} for part in parts]]
        for role, parts in messages
    ]
    return put_text(connection, json.dumps(listing), packed=True)


def _part(connection: sqlite3.Connection, part: str | dict[str, str]) -> str:
    return part if isinstance(part, str) else get_text(connection, part["text"]) or ""
