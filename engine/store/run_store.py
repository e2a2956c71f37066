"""The engine's side of the database: one run, held by a lease.

Every change is one transaction that checks the lease's epoch, moves state by compare-and-set and
writes its event. Nothing here decides what to do next.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from engine.events import (
    DeviceAwaited,
    EngineStarted,
    Event,
    Noted,
    RecordedEvent,
    Stalled,
    StepExhausted,
    TaskOpened,
)
from engine.records import (
    Audit,
    BaselineKernel,
    Candidate,
    CandidateState,
    CommandState,
    Evaluation,
    ProposerKind,
    Run,
    RunState,
    Step,
    Task,
)
from engine.store import audits, evaluations, lease, moves, proposals, run_states, steering
from engine.store import baselines as kept_baselines
from engine.store.database import open_writable, transaction
from engine.store.journal import record
from engine.store.ledger import Ledger, close_calls
from engine.store.rows import (
    RUN_QUERY,
    candidate_from,
    command_from,
    events_from,
    get_text,
    run_from,
    task_from,
)


class RunStore:
    """One run, as its engine sees and changes it; to be used from one thread."""

    def __init__(self, db: Database, path: Path, run: int, epoch: int) -> None:
        self._db = db
        self.path = path
        self._connection = db.conn
        self._connection.row_factory = sqlite3.Row
        self.run_id = run
        self.epoch = epoch
        self.ledger = Ledger(db, run, epoch)
        self._beat_at = time.monotonic()

    @classmethod
    def take(cls, path: Path, run: int) -> RunStore:
        """Opens the database and takes the run's lease; work that a dead engine left is put back.

        Raises:
            StoreError: the database cannot be used.
            LeaseHeld: another engine works on the run.
            KeyError: there is no such run.
        """
        db = open_writable(path)
        with transaction(db) as connection:
            if connection.execute("SELECT 1 FROM runs WHERE id = ?", (run,)).fetchone() is None:
                raise KeyError(f"there is no run {run} in {path}")
            epoch = lease.take(connection, run)
            record(connection, run, EngineStarted(os.getpid(), lease.host_name(), epoch))
            _put_back(connection, run)
        return cls(db, path, run, epoch)

    def _write(self) -> AbstractContextManager[sqlite3.Connection]:
        return lease.leased(self._db, self.run_id, self.epoch)

    def _tell(self, connection: sqlite3.Connection, event: Event) -> None:
        record(connection, self.run_id, event)

    # The run itself

    def run(self) -> Run:
        """The run as it stands."""
        return run_from(self._connection.execute(f"{RUN_QUERY} WHERE runs.id = ?", (self.run_id,)).fetchone())

    def task(self) -> Task:
        """The run's task, from the database and not from the file it once came from."""
        return task_from(self._connection, self._task_id())

    def audit(self) -> Audit | None:
        """What an earlier audit found of the run's task, its inputs cast as the run casts them."""
        return audits.find(self._connection, self._task_id(), self.run().settings.get("dtype"))

    def _task_id(self) -> int:
        return int(self._connection.execute("SELECT task FROM runs WHERE id = ?", (self.run_id,)).fetchone()[0])

    def own_baselines(self) -> tuple[BaselineKernel, ...]:
        """The kernels that people gave the run to compare with, in their order."""
        rows = self._connection.execute(
            "SELECT name, source_hash FROM run_baselines WHERE run = ? ORDER BY position", (self.run_id,)
        ).fetchall()
        return tuple(BaselineKernel(row[0], get_text(self._connection, row[1]) or "") for row in rows)

    def judge_seed(self) -> int:
        """The secret from which the judge draws its inputs; never shown in a prompt or to a contestant."""
        row = self._connection.execute("SELECT judge_seed FROM runs WHERE id = ?", (self.run_id,)).fetchone()
        return int(row[0])

    def heartbeat(self) -> None:
        """Says that this engine lives, and counts the time it worked."""
        now = time.monotonic()
        passed, self._beat_at = now - self._beat_at, now
        with self._write() as connection:
            connection.execute("UPDATE leases SET heartbeat_at = ? WHERE run = ?", (time.time(), self.run_id))
            connection.execute(
                "UPDATE runs SET active_seconds = active_seconds + ? WHERE id = ? AND state = ?",
                (passed, self.run_id, RunState.RUNNING),
            )

    def release(self) -> None:
        """Gives the lease up and closes the database."""
        try:
            with self._write() as connection:
                _put_back(connection, self.run_id)
                connection.execute("UPDATE leases SET released = 1 WHERE run = ?", (self.run_id,))
        except lease.LeaseLost:
            pass
        finally:
            self.close()

    def close(self) -> None:
        """Closes the database without giving up the lease."""
        self._db.close()

    def set_state(self, state: RunState, reason: str = "", ended_by: str | None = None) -> None:
        """Moves the run; an ended run gets its time, its cause, and no waiting work."""
        with self._write() as connection:
            run_states.enter(connection, self.run_id, state, reason, ended_by)

    def finish(self, reason: str, ended_by: str) -> bool:
        """Ends the run as done unless a person wants something judged; returns whether it ended."""
        with self._write() as connection:
            if run_states.person_waits(connection, self.run_id):
                return False
            run_states.enter(connection, self.run_id, RunState.DONE, reason, ended_by)
        return True

    def task_opened(self, device: str, kind: str, facts: Mapping[str, Any], baselines: Mapping[str, float]) -> None:
        """Keeps what the judge said of task and machine; baselines in microseconds."""
        with self._write() as connection:
            connection.execute(
                "UPDATE runs SET device = ?, facts = ? WHERE id = ?", (device, json.dumps(facts), self.run_id)
            )
            kept_baselines.keep(connection, self.run_id, device, kind, facts)
            if audit := facts.get("audit"):
                dtype = self.run().settings.get("dtype")
                audits.keep(connection, self._task_id(), dtype, Audit.from_json(audit))
            self._tell(connection, TaskOpened(device, kind, dict(baselines)))

    def keep_baselines(self, device: str, kind: str, facts: Mapping[str, Any]) -> None:
        """Keeps the baselines that a judge has found, on any of the run's devices."""
        with self._write() as connection:
            kept_baselines.keep(connection, self.run_id, device, kind, facts)

    def known_baselines(self, fingerprint: Mapping[str, str]) -> list[dict[str, Any]]:
        """What any run measured of this task's baselines with the same device, settings and versions."""
        return kept_baselines.find(self._connection, self._task_id(), fingerprint)

    def best_times(self) -> dict[str, float]:
        """Microseconds of the best candidate by case; empty while there is none."""
        row = self._connection.execute(
            "SELECT evaluations.document FROM runs JOIN evaluations ON evaluations.run = runs.id"
            " AND evaluations.candidate = runs.best AND evaluations.state = 'done'"
            " WHERE runs.id = ? ORDER BY evaluations.id DESC LIMIT 1",
            (self.run_id,),
        ).fetchone()
        cases = json.loads(row[0])["cases"] if row is not None else []
        return {case["name"]: case["measurement"]["time_us"] for case in cases if case["measurement"] is not None}

    def device_awaited(self, candidate: int, what: str) -> None:
        """Tells that timing a candidate waits for something; an empty text says that it goes on."""
        with self._write() as connection:
            self._tell(connection, DeviceAwaited(candidate, what))

    def note(self, text: str, candidate: int | None = None) -> None:
        """Adds a line to the run's log."""
        with self._write() as connection:
            self._tell(connection, Noted(text, candidate=candidate))

    def tell_of_a_stall(self, judged: int) -> None:
        """Tells that many candidates were judged without a new best."""
        with self._write() as connection:
            self._tell(connection, Stalled(judged))

    # Candidates

    def candidates(self, *states: CandidateState) -> list[Candidate]:
        """All candidates in the order of their numbers, or those in the given states."""
        where = f" AND state IN ({', '.join('?' * len(states))})" if states else ""
        rows = self._connection.execute(
            f"SELECT * FROM candidates WHERE run = ?{where} ORDER BY number", (self.run_id, *states)
        )
        return [candidate_from(row) for row in rows]

    def some_candidates(self, numbers: Sequence[int]) -> list[Candidate]:
        """The candidates with some numbers, in their order."""
        rows = self._connection.execute(
            "SELECT candidates.* FROM json_each(?) AS wanted CROSS JOIN candidates"
            " ON candidates.run = ? AND candidates.number = wanted.value ORDER BY number",
            (json.dumps(list(numbers)), self.run_id),
        )
        return [candidate_from(row) for row in rows]

    def last_event(self) -> int:
        """The id of the run's newest event, 0 when there is none."""
        row = self._connection.execute("SELECT max(id) FROM events WHERE run = ?", (self.run_id,)).fetchone()
        return int(row[0] or 0)

    def events(self, after: int) -> list[RecordedEvent]:
        """What happened to the run after an event's id, oldest first."""
        rows = self._connection.execute(
            "SELECT id, run, at, kind, body FROM events WHERE run = ? AND id > ? ORDER BY id", (self.run_id, after)
        ).fetchall()
        return events_from(rows)

    def exhaustions(self) -> set[tuple[int, Step]]:
        """The parents (0 is the root) and steps for which there is nothing more to offer."""
        rows = self._connection.execute("SELECT parent, step FROM exhaustions WHERE run = ?", (self.run_id,))
        return {(row[0], Step(row[1])) for row in rows}

    def add_exhaustion(self, parent: int | None, step: Step, reason: str) -> None:
        """Keeps that there is nothing more to offer for a parent and step."""
        with self._write() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO exhaustions (run, parent, step, reason) VALUES (?, ?, ?, ?)",
                (self.run_id, parent or 0, step, reason),
            )
            self._tell(connection, StepExhausted(parent, step, reason))

    def recipes(self) -> dict[int, Mapping[str, Any]]:
        """How each candidate that has a recipe was made."""
        return proposals.recipes(self._connection, self.run_id)

    def tried(self) -> list[Mapping[str, Any]]:
        """The recipes that proposers tried and could not write."""
        return proposals.tried_recipes(self._connection, self.run_id)

    def structures(self) -> list[str]:
        """What the run's structural candidates do, each different one once, as it was handed to `proposed`."""
        return proposals.structures(self._connection, self.run_id)

    def why(self, number: int) -> Mapping[str, Any]:
        """Why a candidate was asked for, as it was written down before it was."""
        return proposals.why(self._connection, self.run_id, number)

    def source(self, number: int) -> str:
        """A candidate's text."""
        row = self._connection.execute(
            "SELECT source_hash FROM candidates WHERE run = ? AND number = ?", (self.run_id, number)
        ).fetchone()
        return get_text(self._connection, row[0]) or ""

    def add_candidate(
        self, parent: Candidate | None, step: Step, proposer: ProposerKind, why: Mapping[str, Any]
    ) -> int:
        """Writes down that a proposer will be asked, before it is; returns the new number."""
        with self._write() as connection:
            return proposals.add(connection, self.run_id, parent.number if parent else None, step, proposer, why)

    def proposed(
        self,
        number: int,
        source: str,
        idea: str,
        recipe: Mapping[str, Any] | None,
        gated: bool,
        *,
        tried: Sequence[Mapping[str, Any]] = (),
        novelty: float | None = None,
        structure: str | None = None,
    ) -> CandidateState:
        """Takes a proposer's answer; a text that the run already has makes the candidate a duplicate.

        An answer for a candidate that was abandoned meanwhile is kept with its proposal, so that it is not made again.
        Returns the state the candidate is in afterwards.
        """
        with self._write() as connection:
            return proposals.take_answer(
                connection,
                self.run_id,
                number,
                source,
                idea,
                recipe,
                gated=gated,
                tried=tried,
                novelty=novelty,
                structure=structure,
            )

    def proposal_failed(self, number: int, reason: str, tried: Sequence[Mapping[str, Any]] = ()) -> None:
        """Keeps that the proposer gave nothing usable."""
        with self._write() as connection:
            proposals.fail(connection, self.run_id, number, reason, tried)

    # Evaluations

    def claim(self, number: int) -> bool:
        """Takes a queued candidate, or one that is to be judged again, for the judge.

        Returns whether it was still there to take.
        """
        with self._write() as connection:
            return evaluations.claim(connection, self.run_id, self.epoch, number)

    def attempts(self, number: int) -> int:
        """How often the judge has been given this candidate."""
        row = self._connection.execute(
            "SELECT attempts FROM candidates WHERE run = ? AND number = ?", (self.run_id, number)
        ).fetchone()
        return int(row[0])

    def fingerprints(self) -> set[str]:
        """The fingerprints of the candidates that have a time: what runs the same code needs none."""
        return evaluations.fingerprints(self._connection, self.run_id)

    def requeue(self, number: int, reason: str) -> None:
        """Puts a candidate back whose evaluation failed through no fault of its own."""
        with self._write() as connection:
            moves.move(connection, self.run_id, number, (CandidateState.EVALUATING,), CandidateState.QUEUED, reason)
            moves.void_evaluation(connection, self.run_id, number)

    def give_up_retest(self, number: int, reason: str) -> None:
        """Leaves a judged candidate with the verdict it has, and says why it was not judged again."""
        with self._write() as connection:
            evaluations.give_up_retest(connection, self.run_id, number)
            self._tell(connection, Noted(f"{number} keeps its verdict: {reason}", candidate=number))

    def evaluated(self, number: int, evaluation: Evaluation, speedup: float | None, reward: float | None) -> bool:
        """Keeps a verdict with its measurements, all or nothing; returns whether it still counted.

        A correct candidate whose compiled code and launches equal those of an earlier one becomes its duplicate.
        """
        with self._write() as connection:
            return evaluations.keep_verdict(connection, self.run_id, number, evaluation, speedup, reward)

    # Commands

    def obey(self, desk: steering.Desk | None = None) -> None:
        """Carries out every command that waits, oldest first, each with its answer in one transaction.

        What a search must be under way for goes on waiting without one.
        """
        rows = self._connection.execute(
            "SELECT * FROM commands WHERE run = ? AND state = ? ORDER BY id", (self.run_id, CommandState.QUEUED)
        ).fetchall()
        for command in map(command_from, rows):
            if command.kind in steering.NEEDS_DESK and desk is None:
                continue
            try:
                with self._write() as connection:
                    if not steering.still_asked(connection, command):
                        continue
                    text = steering.carry_out(connection, command, desk)
                    steering.answer(connection, command, CommandState.DONE, text)
            except steering.Refused as refusal:
                with self._write() as connection:
                    steering.answer(connection, command, CommandState.REFUSED, str(refusal))


def _put_back(connection: sqlite3.Connection, run: int) -> None:
    """Queues again what was being judged; a proposal that was being made stays to be asked for again.

    Requests to models that were under way have been paid for and are lost.
    """
    close_calls(connection, run)
    evaluations.put_back(connection, run)
