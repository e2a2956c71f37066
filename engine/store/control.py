"""The side of people and launchers: makes runs, asks things of them, edits skills.

Nothing here judges, proposes or waits for an engine.
"""

from __future__ import annotations

import getpass
import json
import secrets
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine.events import CommandAnswered, CommandQueued, RunChanged, SkillChanged
from engine.records import (
    Audit,
    BaselineKernel,
    Command,
    CommandKind,
    CommandState,
    RunState,
    Task,
)
from engine.settings import RunSettings, parse_run_settings
from engine.store import audits, lease, proposals, steering
from engine.store.database import open_writable, transaction
from engine.store.journal import record
from engine.store.rows import command_from, put_text, task_id_of
from skills.memory import SkillMemory
from skills.rule_files import shipped_rules

_WITHOUT_ENGINE = (
    CommandKind.PRUNE,
    CommandKind.RESTORE,
    CommandKind.PIN,
    CommandKind.UNPIN,
    CommandKind.HINT,
    CommandKind.BUDGET,
)
_REFUSED_AT_THE_END = (CommandKind.PAUSE, CommandKind.RESUME, CommandKind.STOP)


class Control:
    """A writable connection for what people do; to be used from one thread."""

    def __init__(self, path: Path) -> None:
        self._db = open_writable(path)
        self._db.conn.row_factory = sqlite3.Row
        self.path = path

    def __enter__(self) -> Control:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._db.close()

    # Runs

    def create_run(
        self,
        task: Task,
        settings: RunSettings,
        name: str = "",
        baselines: Sequence[BaselineKernel] = (),
        start: str | None = None,
        audit: Audit | None = None,
    ) -> int:
        """Writes a new run with its task, its own baselines, its seeds and the shipped skills; returns its number.

        `start` is the text of a person's own kernel: candidate 1, judged first, from which all others grow. `audit` is
        what has been found of the task.
        """
        now = time.time()
        with transaction(self._db) as connection:
            task_id = _keep_task(connection, task)
            if audit is not None:
                audits.keep(connection, task_id, settings.dtype, audit)
            cursor = connection.execute(
                "INSERT INTO runs (name, task, state, settings, budget, seed, judge_seed, created_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    name or task.name,
                    task_id,
                    RunState.CREATED,
                    settings.model_copy(update={"start": start is not None}).model_dump_json(),
                    settings.budget,
                    settings.seed,
                    secrets.randbits(62),
                    now,
                ),
            )
            run = cursor.lastrowid
            assert run is not None
            connection.executemany(
                "INSERT INTO run_baselines (run, position, name, source_hash) VALUES (?, ?, ?, ?)",
                [
                    (run, position, kernel.name, put_text(connection, kernel.source))
                    for position, kernel in enumerate(baselines)
                ],
            )
            record(connection, run, RunChanged(RunState.CREATED))
            if start is not None:
                proposals.add_own(connection, run, None, start, "the kernel that the search starts from")
            _seed_skills(connection)
        return run

    def fail_to_start(self, run: int, reason: str) -> None:
        """Marks a run whose engine could not be started."""
        with transaction(self._db) as connection:
            connection.execute(
                "UPDATE runs SET state = ?, reason = ?, ended_at = ? WHERE id = ?",
                (RunState.FAILED, reason, time.time(), run),
            )
            record(connection, run, RunChanged(RunState.FAILED, reason))

    def change_ends(self, run: int, ends: Mapping[str, Any]) -> None:
        """Changes when a run ends; only for a run that no engine works on, which reads its settings at its start.

        Raises:
            KeyError: there is no such run.
            SettingsError: an end is not allowed.
        """
        with transaction(self._db) as connection:
            row = connection.execute("SELECT settings FROM runs WHERE id = ?", (run,)).fetchone()
            if row is None:
                raise KeyError(f"there is no run {run} in {self.path}")
            settings = parse_run_settings({**json.loads(row[0]), **ends})
            connection.execute("UPDATE runs SET settings = ? WHERE id = ?", (settings.model_dump_json(), run))
            if "budget" in ends:
                connection.execute("UPDATE runs SET budget = ? WHERE id = ?", (settings.budget, run))

    # Commands

    def ask(self, run: int, kind: CommandKind, candidate: int | None = None, argument: str = "") -> Command:
        """Asks something of a run.

        With a living engine the command is queued for it. Without one, what needs none (prune, restore, pin,
        unpin, hint, budget) applies at once; the rest waits for `resume`, and the answer says so. An ended run
        cannot be paused or stopped.

        Raises:
            KeyError: there is no such run.
        """
        with transaction(self._db) as connection:
            row = connection.execute("SELECT state FROM runs WHERE id = ?", (run,)).fetchone()
            if row is None:
                raise KeyError(f"there is no run {run} in {self.path}")
            cursor = connection.execute(
                "INSERT INTO commands (run, kind, candidate, argument, state, author, created_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (run, kind, candidate, argument, CommandState.QUEUED, author(), time.time()),
            )
            assert cursor.lastrowid is not None
            record(connection, run, CommandQueued(cursor.lastrowid, kind, candidate=candidate))
            command = _command(connection, cursor.lastrowid)
            holder = lease.holder_of(connection, run)
            # An engine whose run has ended is on its way out and looks at no command any more.
            if holder is None or not holder.alive or RunState(row[0]).ended:
                self._without_engine(connection, command, RunState(row[0]).ended)
            return _command(connection, command.id)

    def _without_engine(self, connection: sqlite3.Connection, command: Command, ended: bool) -> None:
        if command.kind not in _WITHOUT_ENGINE and not (ended and command.kind in _REFUSED_AT_THE_END):
            connection.execute(
                "UPDATE commands SET answer = ? WHERE id = ?",
                (f"no engine works on run {command.run}; this waits for: kernelgrove resume {command.run}", command.id),
            )
            return
        try:
            text = steering.carry_out(connection, command)
        except steering.Refused as refusal:
            steering.answer(connection, command, CommandState.REFUSED, str(refusal))
        else:
            more = f"; let it go on with: kernelgrove resume {command.run}"
            text += more if command.kind is CommandKind.BUDGET else ""
            steering.answer(connection, command, CommandState.DONE, text)

    def retract(self, run: int, command: int) -> Command:
        """Takes back a command that nobody answered yet; its state tells whether that was so.

        Raises:
            KeyError: the run has no such command.
        """
        with transaction(self._db) as connection:
            changed = connection.execute(
                "UPDATE commands SET state = ?, answer = 'taken back', answered_at = ?"
                " WHERE id = ? AND run = ? AND state = ?",
                (CommandState.RETRACTED, time.time(), command, run, CommandState.QUEUED),
            ).rowcount
            found = _command(connection, command)
            if found.run != run:
                raise KeyError(f"run {run} has no command {command}")
            if changed:
                record(
                    connection,
                    run,
                    CommandAnswered(command, found.kind, found.state, found.answer, candidate=found.candidate),
                )
            return found

    def add_human(self, run: int, parent: int | None, source: str, idea: str) -> int:
        """Enters a person's own kernel as a child; it needs no approval and costs no budget.

        Raises:
            KeyError: there is no such run or parent, or the parent is pruned.
        """
        with transaction(self._db) as connection:
            if connection.execute("SELECT 1 FROM runs WHERE id = ?", (run,)).fetchone() is None:
                raise KeyError(f"there is no run {run} in {self.path}")
            return proposals.add_own(connection, run, parent, source, idea)

    # Skills

    @contextmanager
    def skills(self) -> Iterator[SkillMemory]:
        """The skill memory, shipped rules included; what the block changes is kept together, or not at all.

        Call `skill_changed` inside the block for each rule that was changed.
        """
        with transaction(self._db) as connection:
            _seed_skills(connection)
            yield SkillMemory(connection)

    def skill_changed(self, skill: int, name: str, revision: int, change: str) -> None:
        """Writes the event of a skill's change; only inside a `skills` block."""
        assert self._db.conn.in_transaction, "skill_changed belongs inside a skills block"
        record(self._db.conn, None, SkillChanged(skill, name, revision, change))


def _keep_task(connection: sqlite3.Connection, task: Task) -> int:
    source_hash = put_text(connection, task.source)
    if (known := task_id_of(connection, task)) is not None:
        return known
    task_id = connection.execute(
        "INSERT INTO tasks (name, family, format, path, source_hash) VALUES (?, ?, ?, ?, ?)",
        (task.name, task.family, task.format, task.path, source_hash),
    ).lastrowid
    assert task_id is not None
    connection.executemany(
        "INSERT INTO cases (task, position, name, weight, overrides, small_overrides, atol, rtol)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                task_id,
                position,
                case.name,
                case.weight,
                json.dumps(case.overrides),
                json.dumps(case.small_overrides),
                case.atol,
                case.rtol,
            )
            for position, case in enumerate(task.cases)
        ],
    )
    return task_id


def _seed_skills(connection: sqlite3.Connection) -> None:
    SkillMemory(connection).seed(shipped_rules())


def _command(connection: sqlite3.Connection, command: int) -> Command:
    row = connection.execute("SELECT * FROM commands WHERE id = ?", (command,)).fetchone()
    if row is None:
        raise KeyError(f"there is no command {command}")
    return command_from(row)


def author() -> str:
    """Who is at the keyboard, as commands and edits are signed."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
