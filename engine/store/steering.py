"""What a person's command does to a run, as SQL on an open write transaction.

The engine carries commands out while it lives; without one, `control` carries out those that need no
engine, each in one transaction that no engine can start within. The answer is shown to the person; `Refused`
is raised with a sentence when a command makes no sense.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from typing import Any, Protocol

from engine.events import CandidateFlagged, CommandAnswered, RunChanged
from engine.records import CandidateState, Command, CommandKind, CommandState, ProposerKind, RunState, Step
from engine.store import proposals
from engine.store.best import refresh_best
from engine.store.journal import record
from engine.store.moves import PRUNED_REASON, SUBTREE, WAITING, abandon, bring_back, move

MAX_BUDGET = 1_000_000
MAX_HINT = 4_000
"""How many characters a hint may have: it is part of every prompt below it."""

_COMES_FROM = {
    RunState.PAUSED: (RunState.CREATED, RunState.RUNNING),
    RunState.RUNNING: (RunState.PAUSED,),
    RunState.STOPPING: (RunState.CREATED, RunState.RUNNING, RunState.PAUSED),
}
"""The states of a run from which a person can bring it into another."""


class Refused(Exception):
    """The command cannot be carried out; the message is the answer."""


class Desk(Protocol):
    """Who knows what proposers can do: a search that is under way."""

    def taker(self, number: int, step: Step) -> tuple[ProposerKind, Mapping[str, Any]]:
        """Who takes a step at a candidate (0 is the root), and what is shown to them; raises `Refused` if nobody."""

    def check_answer(self, parent: int | None, text: str) -> None:
        """Makes sure that a person's answer can be used, as a change of a parent or by itself; raises `Refused`."""


NEEDS_DESK = (CommandKind.FORCE, CommandKind.ANSWER)
"""Commands that wait until a search is under way."""


def carry_out(connection: sqlite3.Connection, command: Command, desk: Desk | None = None) -> str:
    """Does what a command asks and returns the answer; some need to know what proposers can do.

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
        case CommandKind.HINT:
            return _hint(connection, command)
    if command.candidate is None:
        raise Refused(f"{command.kind} needs the number of a candidate")
    if command.kind in NEEDS_DESK:
        assert desk is not None
        done = _force if command.kind is CommandKind.FORCE else _take_answer
        return done(connection, command, command.candidate, desk)
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
        case CommandKind.RETEST:
            return _retest(connection, run, number)
    raise AssertionError(f"{command.kind} is not carried out here")


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


# The tree


def _prune(connection: sqlite3.Connection, run: int, number: int) -> str:
    """Takes a subtree out of the search; its waiting and running work is abandoned, its records stay.

    Each candidate keeps who took it out: what was pruned before stays so when this is restored.
    """
    if _candidate(connection, run, number)["pruned"]:
        raise Refused(f"candidate {number} is pruned already")
    where = {"run": run, "number": number}
    rows = connection.execute(
        SUBTREE + "SELECT number, state FROM candidates WHERE run = :run AND number IN subtree AND NOT pruned", where
    ).fetchall()
    connection.execute(
        SUBTREE + "UPDATE candidates SET pruned = 1, pruned_by = :number, changed_at = :now"
        " WHERE run = :run AND number IN subtree AND NOT pruned",
        {**where, "now": time.time()},
    )
    waiting = [member for member, state in rows if state in WAITING]
    for member in waiting:
        abandon(connection, run, member, PRUNED_REASON)
    record(connection, run, CandidateFlagged(number, "pruned", True, len(rows)))
    refresh_best(connection, run)
    return f"pruned {_with_subtree(number, len(rows))}" + (f"; {len(waiting)} were still waiting" if waiting else "")


def _restore(connection: sqlite3.Connection, run: int, number: int) -> str:
    """Brings back what pruning a candidate took out; work that it abandoned waits again if it has a source."""
    row = _candidate(connection, run, number)
    if not row["pruned"]:
        raise Refused(f"candidate {number} is not pruned")
    if row["pruned_by"] != number:
        raise Refused(f"candidate {number} lies below {row['pruned_by']}, which is pruned; restore that one")
    above = _candidate(connection, run, row["parent"]) if row["parent"] is not None else row
    if above is not row and above["pruned"]:
        raise Refused(f"candidate {number} lies below {above['pruned_by']}, which is pruned; restore that one")
    members = [
        member
        for (member,) in connection.execute(
            "SELECT number FROM candidates WHERE run = ? AND pruned_by = ?", (run, number)
        ).fetchall()
    ]
    connection.execute(
        "UPDATE candidates SET pruned = 0, pruned_by = NULL, changed_at = ? WHERE run = ? AND pruned_by = ?",
        (time.time(), run, number),
    )
    back = bring_back(connection, run, members, (PRUNED_REASON,))
    record(connection, run, CandidateFlagged(number, "pruned", False, len(members)))
    refresh_best(connection, run)
    return f"restored {_with_subtree(number, len(members))}" + (f"; {len(back)} wait again" if back else "")


def _with_subtree(number: int, members: int) -> str:
    return f"{number} and the {members - 1} that grew from it" if members > 1 else str(number)


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


def _retest(connection: sqlite3.Connection, run: int, number: int) -> str:
    """Has a judged candidate judged again; it keeps its verdict until the new one is there."""
    row = _candidate(connection, run, number)
    if row["state"] == CandidateState.DUPLICATE:
        raise Refused(f"candidate {number} is the same as {row['duplicate_of']}; retest that one")
    if row["state"] != CandidateState.EVALUATED:
        raise Refused(f"candidate {number} has not been judged; it is {_words(row['state'])}")
    if row["pruned"]:
        raise Refused(f"candidate {number} is pruned; restore it first")
    if row["retest"]:
        raise Refused(f"candidate {number} waits to be judged again already")
    connection.execute(
        "UPDATE candidates SET retest = 1, attempts = 0, changed_at = ? WHERE run = ? AND number = ?",
        (time.time(), run, number),
    )
    record(connection, run, CandidateFlagged(number, "retest", True))
    return f"{number} is judged again, and keeps its verdict until then"


def _take_answer(connection: sqlite3.Connection, command: Command, number: int, desk: Desk) -> str:
    """Takes what a person answers to a prompt; the command's row is where its proposer finds it."""
    row = _candidate(connection, command.run, number)
    if row["proposer"] != ProposerKind.MANUAL or row["state"] != CandidateState.PROPOSING:
        raise Refused(f"candidate {number} does not wait for an answer; it is {_words(row['state'])}")
    answered = connection.execute(
        "SELECT 1 FROM commands WHERE run = ? AND kind = ? AND candidate = ? AND state = ?",
        (command.run, command.kind, number, CommandState.DONE),
    ).fetchone()
    if answered is not None:
        raise Refused(f"candidate {number} has been answered already")
    desk.check_answer(row["parent"] if row["step"] == Step.LOCAL else None, command.argument)
    return f"the answer is taken as candidate {number}"


def _force(connection: sqlite3.Connection, command: Command, number: int, desk: Desk) -> str:
    """Asks for a step at a candidate (0 is the root), whatever the policy would choose."""
    run = command.run
    if command.argument not in tuple(Step):
        raise Refused(f"a step is {' or '.join(Step)}, not {command.argument!r}")
    step = Step(command.argument)
    if not number and step is Step.LOCAL:
        raise Refused("there is no kernel at the root that a local step could edit")
    if number:
        row = _candidate(connection, run, number)
        if row["pruned"]:
            raise Refused(f"candidate {number} is pruned; restore it first")
        if row["state"] != CandidateState.EVALUATED:
            raise Refused(f"nothing can grow from candidate {number}; it is {_words(row['state'])}")
    proposer, shown = desk.taker(number, step)
    why = {"step": f"forced by {command.author}", "command": command.id, **shown}
    made = proposals.add(connection, run, number or None, step, proposer, why)
    return f"a {step} step {f'from {number}' if number else 'at the root'} becomes candidate {made}"


# The run


def _hint(connection: sqlite3.Connection, command: Command) -> str:
    """Takes a person's advice; the command's row is where prompts read it."""
    text = command.argument.strip()
    if not text:
        raise Refused("a hint needs a text")
    if len(text) > MAX_HINT:
        raise Refused(f"a hint has at most {MAX_HINT} characters, this one has {len(text)}")
    if command.candidate is None:
        return "the hint goes into every proposal from now on"
    _candidate(connection, command.run, command.candidate)
    return f"the hint goes into every proposal that grows from {command.candidate}"


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
        raise Refused(f"candidate {number} does not wait for approval; it is {_words(state)}")


def _words(state: str) -> str:
    return state.replace("_", " ")


def _candidate(connection: sqlite3.Connection, run: int, number: int) -> dict[str, Any]:
    cursor = connection.execute("SELECT * FROM candidates WHERE run = ? AND number = ?", (run, number))
    row = cursor.fetchone()
    if row is None:
        raise Refused(f"run {run} has no candidate {number}")
    return dict(zip((column[0] for column in cursor.description), row, strict=True))
