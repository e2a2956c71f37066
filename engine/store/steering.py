"""What a person's command does to a run, as SQL on an open write transaction.

The engine carries commands out while it lives; without one, `control` carries out those that need no
engine. The answer is shown to the person; `Refused` is raised with a sentence when a command makes no
sense.
"""

from __future__ import annotations

import sqlite3
import time
from typing import Any, assert_never

from engine.events import BestChanged, CandidateFlagged, CandidateMoved, CommandAnswered, RunChanged
from engine.records import INELIGIBLE_LABELS, CandidateState, Command, CommandKind, CommandState, RunState
from engine.store.journal import record
from engine.store.ledger import close_calls

WAITING = (CandidateState.PROPOSING, CandidateState.AWAITING_APPROVAL, CandidateState.QUEUED, CandidateState.EVALUATING)
PRUNED_REASON = "pruned"
MAX_BUDGET = 1_000_000

_SUBTREE = (
    "WITH RECURSIVE subtree(number) AS (SELECT :number UNION ALL SELECT candidates.number FROM candidates"
    " JOIN subtree ON candidates.parent = subtree.number WHERE candidates.run = :run) "
)


_COMES_FROM = {
    RunState.PAUSED: (RunState.CREATED, RunState.RUNNING),
    RunState.RUNNING: (RunState.PAUSED,),
    RunState.STOPPING: (RunState.CREATED, RunState.RUNNING, RunState.PAUSED),
}
"""The states of a run from which a person can bring it into another."""


class Refused(Exception):
    """The command cannot be carried out; the message is the answer."""


def carry_out(connection: sqlite3.Connection, command: Command) -> str:
    """Does what a command asks and returns the answer.

    Raises:
        Refused: the command makes no sense as things stand.
    """
    match command.kind:
        case CommandKind.PAUSE:
            return _change_run(connection, command, RunState.PAUSED, "pausing; running work is finished")
        case CommandKind.RESUME:
            return _change_run(connection, command, RunState.RUNNING, "the search goes on")
        case CommandKind.STOP:
            return _change_run(connection, command, RunState.STOPPING, "stopping")
        case CommandKind.BUDGET:
            return _set_budget(connection, command)
    if command.candidate is None:
        raise Refused(f"{command.kind} needs the number of a candidate")
    run, number = command.run, command.candidate
    match command.kind:
        case CommandKind.PRUNE:
            return _prune(connection, run, number)
        case CommandKind.RESTORE:
            return _restore(connection, run, number)
        case CommandKind.PIN | CommandKind.UNPIN:
            return _set_pinned(connection, run, number, command.kind is CommandKind.PIN)
        case CommandKind.APPROVE:
            return _approve(connection, run, number)
        case CommandKind.REJECT:
            return _reject(connection, run, number, command.argument)
        case _:
            assert_never(command.kind)


def still_asked(connection: sqlite3.Connection, command: Command) -> bool:
    """Whether nobody has answered a command or taken it back since it was read."""
    row = connection.execute("SELECT state FROM commands WHERE id = ?", (command.id,)).fetchone()
    return bool(row[0] == CommandState.QUEUED)


def answer(connection: sqlite3.Connection, command: Command, state: CommandState, text: str) -> None:
    """Writes the answer to a command, if it is still queued."""
    changed = connection.execute(
        "UPDATE commands SET state = ?, answer = ?, answered_at = ? WHERE id = ? AND state = ?",
        (state, text, time.time(), command.id, CommandState.QUEUED),
    ).rowcount
    if changed:
        record(
            connection, command.run, CommandAnswered(command.id, command.kind, state, text, candidate=command.candidate)
        )


def _prune(connection: sqlite3.Connection, run: int, number: int) -> str:
    """Takes a subtree out of the search; its waiting and running work is abandoned, its records stay."""
    _candidate(connection, run, number)
    members = subtree(connection, run, number)
    connection.execute(
        _SUBTREE + "UPDATE candidates SET pruned = 1, changed_at = :now WHERE run = :run AND number IN subtree",
        {"run": run, "number": number, "now": time.time()},
    )
    waiting = connection.execute(
        _SUBTREE + "SELECT candidates.number FROM candidates WHERE run = :run AND number IN subtree"
        f" AND state IN ({_marks(WAITING)})",
        {"run": run, "number": number},
    ).fetchall()
    for (member,) in waiting:
        abandon(connection, run, member, PRUNED_REASON)
    record(connection, run, CandidateFlagged(number, "pruned", True, len(members)))
    refresh_best(connection, run)
    return f"pruned {_with_subtree(number, members)}" + (f"; {len(waiting)} were still waiting" if waiting else "")


def _restore(connection: sqlite3.Connection, run: int, number: int) -> str:
    """Brings a pruned subtree back; work that pruning abandoned is queued again if it has a source."""
    if not _candidate(connection, run, number)["pruned"]:
        raise Refused(f"candidate {number} is not pruned")
    parent = connection.execute(
        "SELECT parent.number FROM candidates AS child JOIN candidates AS parent"
        " ON parent.run = child.run AND parent.number = child.parent"
        " WHERE child.run = ? AND child.number = ? AND parent.pruned",
        (run, number),
    ).fetchone()
    if parent:
        raise Refused(f"candidate {number} lies below {parent[0]}, which is pruned; restore that one")
    members = subtree(connection, run, number)
    connection.execute(
        _SUBTREE + "UPDATE candidates SET pruned = 0, changed_at = :now WHERE run = :run AND number IN subtree",
        {"run": run, "number": number, "now": time.time()},
    )
    abandoned = connection.execute(
        _SUBTREE + "SELECT candidates.number, candidates.approved FROM candidates WHERE run = :run"
        " AND number IN subtree AND state = :state AND reason = :reason AND source_hash IS NOT NULL",
        {"run": run, "number": number, "state": CandidateState.ABANDONED, "reason": PRUNED_REASON},
    ).fetchall()
    for member, approved in abandoned:
        state = CandidateState.QUEUED if approved else CandidateState.AWAITING_APPROVAL
        move(connection, run, member, (CandidateState.ABANDONED,), state, "")
    record(connection, run, CandidateFlagged(number, "pruned", False, len(members)))
    refresh_best(connection, run)
    return f"restored {_with_subtree(number, members)}" + (f"; {len(abandoned)} wait again" if abandoned else "")


def _with_subtree(number: int, members: list[int]) -> str:
    below = len(members) - 1
    return f"{number} and the {below} that grew from it" if below else str(number)


def _set_pinned(connection: sqlite3.Connection, run: int, number: int, pinned: bool) -> str:
    """Marks a candidate for a person's attention, or takes the mark away."""
    if bool(_candidate(connection, run, number)["pinned"]) == pinned:
        raise Refused(f"candidate {number} is {'already' if pinned else 'not'} pinned")
    connection.execute(
        "UPDATE candidates SET pinned = ?, changed_at = ? WHERE run = ? AND number = ?",
        (pinned, time.time(), run, number),
    )
    record(connection, run, CandidateFlagged(number, "pinned", pinned))
    return f"{'pinned' if pinned else 'unpinned'} {number}"


def _approve(connection: sqlite3.Connection, run: int, number: int) -> str:
    """Lets a waiting proposal be judged."""
    _must_wait(connection, run, number)
    connection.execute("UPDATE candidates SET approved = 1 WHERE run = ? AND number = ?", (run, number))
    move(connection, run, number, (CandidateState.AWAITING_APPROVAL,), CandidateState.QUEUED, "")
    return f"approved {number}; it is queued for the judge"


def _reject(connection: sqlite3.Connection, run: int, number: int, reason: str) -> str:
    """Turns a waiting proposal down; it costs no budget."""
    _must_wait(connection, run, number)
    text = f"rejected: {reason}" if reason else "rejected by a person"
    move(connection, run, number, (CandidateState.AWAITING_APPROVAL,), CandidateState.REJECTED, text)
    return f"rejected {number}"


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
        f" AND state IN ({_marks(expected)})",
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


def void_evaluation(connection: sqlite3.Connection, run: int, number: int) -> None:
    """Closes an evaluation that came to no verdict."""
    connection.execute(
        "UPDATE evaluations SET state = 'void', ended_at = ? WHERE run = ? AND candidate = ? AND state = 'running'",
        (time.time(), run, number),
    )


def subtree(connection: sqlite3.Connection, run: int, number: int) -> list[int]:
    """The numbers of a candidate and all that grew from it."""
    rows = connection.execute(_SUBTREE + "SELECT number FROM subtree", {"run": run, "number": number}).fetchall()
    return [row[0] for row in rows]


def hints(connection: sqlite3.Connection, run: int, number: int | None) -> list[str]:
    """What people hinted for the whole run, and for a candidate or one that it grew from, oldest first."""
    rows = connection.execute(
        "WITH RECURSIVE above(number) AS (SELECT :number UNION ALL SELECT candidates.parent FROM candidates"
        " JOIN above ON candidates.number = above.number WHERE candidates.run = :run)"
        " SELECT argument FROM commands WHERE run = :run AND kind = 'hint' AND state = :done"
        " AND (candidate IS NULL OR candidate IN above) ORDER BY id",
        {"run": run, "number": number, "done": CommandState.DONE},
    ).fetchall()
    return [row[0] for row in rows]


def refresh_best(connection: sqlite3.Connection, run: int) -> None:
    """Works out the fastest eligible candidate anew and tells of it if it changed."""
    settings, before = connection.execute(
        "SELECT coalesce(json_extract(settings, '$.allow'), '[]'), best FROM runs WHERE id = ?", (run,)
    ).fetchone()
    blocking = _marks(sorted(INELIGIBLE_LABELS))
    row = connection.execute(
        "SELECT number, time_us, speedup FROM candidates WHERE run = ? AND state = ? AND verdict = 'correct'"
        " AND time_us IS NOT NULL AND NOT pruned"
        " AND NOT EXISTS (SELECT 1 FROM json_each(candidates.labels) AS label"
        f" WHERE label.value IN ({blocking}) AND label.value NOT IN (SELECT value FROM json_each(?)))"
        " ORDER BY time_us, number LIMIT 1",
        (run, CandidateState.EVALUATED, settings),
    ).fetchone()
    best = None if row is None else row[0]
    if best == before:
        return
    connection.execute("UPDATE runs SET best = ? WHERE id = ?", (best, run))
    record(connection, run, BestChanged(None) if row is None else BestChanged(row[0], row[1], row[2]))


def _change_run(connection: sqlite3.Connection, command: Command, state: RunState, text: str) -> str:
    current = RunState(connection.execute("SELECT state FROM runs WHERE id = ?", (command.run,)).fetchone()[0])
    if current not in _COMES_FROM[state]:
        raise Refused(f"run {command.run} is {current}")
    started_at = time.time() if state is RunState.RUNNING else None
    connection.execute(
        "UPDATE runs SET state = ?, started_at = coalesce(started_at, ?) WHERE id = ?", (state, started_at, command.run)
    )
    record(connection, command.run, RunChanged(state))
    return text


def _set_budget(connection: sqlite3.Connection, command: Command) -> str:
    text = command.argument
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= MAX_BUDGET):
        raise Refused(f"a budget is a whole number from 1 to {MAX_BUDGET}, not {text!r}")
    connection.execute("UPDATE runs SET budget = ? WHERE id = ?", (int(text), command.run))
    return f"the budget is now {int(text)} candidates"


def _must_wait(connection: sqlite3.Connection, run: int, number: int) -> None:
    state = _candidate(connection, run, number)["state"]
    if state != CandidateState.AWAITING_APPROVAL:
        raise Refused(f"candidate {number} does not wait for approval; it is {state.replace('_', ' ')}")


def _candidate(connection: sqlite3.Connection, run: int, number: int) -> dict[str, Any]:
    cursor = connection.execute("SELECT * FROM candidates WHERE run = ? AND number = ?", (run, number))
    row = cursor.fetchone()
    if row is None:
        raise Refused(f"run {run} has no candidate {number}")
    return dict(zip((column[0] for column in cursor.description), row, strict=True))


def _marks(values: tuple[str, ...] | list[str] | list[object]) -> str:
    """Quotes fixed words of our own enums for an IN list."""
    return ", ".join(f"'{value}'" for value in values)
