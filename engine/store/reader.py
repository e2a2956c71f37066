"""The read-only side for screens and look-ups: cheap questions to a file that others write.

A screen asks `data_version` often (microseconds), and only when it moved asks for the events after its
cursor and for the rows those events name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.ends import Standing, bound_share
from engine.events import CandidateMoved, DeviceAwaited, RecordedEvent
from engine.records import (
    Audit,
    Candidate,
    CandidateState,
    Command,
    CommandKind,
    CommandState,
    Evaluation,
    ModelCall,
    ProposerKind,
    Run,
    Spending,
    Step,
    Task,
    Verdict,
)
from engine.store import audits, baselines, lease, ledger, moves, steering
from engine.store.database import open_read_only
from engine.store.rows import (
    RUN_QUERY,
    candidate_from,
    command_from,
    evaluation_from_json,
    events_from,
    get_text,
    run_from,
    task_from,
    task_id_of,
    text_hash,
)
from skills.memory import SkillMemory


@dataclass(frozen=True, slots=True)
class RunOverview:
    """A run with the counts and the best that a list of runs shows. Times in microseconds."""

    run: Run
    candidates: int
    judged: int
    correct: int
    waiting_approval: int
    best_time_us: float | None
    best_speedup: float | None
    engine: lease.Holder | None
    spending: Spending = field(default_factory=Spending)


@dataclass(frozen=True, slots=True)
class ProposalNote:
    """How a candidate came about: who was asked, why there, and how to make it again."""

    proposer: str
    state: str
    why: Mapping[str, Any]
    recipe: Mapping[str, Any] | None
    failure: str | None
    started_at: float
    ended_at: float | None


class Reader:
    """A read-only connection; to be used from one thread, cheap to open."""

    def __init__(self, path: Path) -> None:
        self._connection = open_read_only(path)
        self.path = path

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def data_version(self) -> int:
        """A number that changes whenever another connection has committed."""
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    # Runs

    def runs(self) -> list[RunOverview]:
        """All runs, newest first."""
        rows = self._connection.execute(f"{RUN_QUERY} ORDER BY runs.id DESC").fetchall()
        return [self._overview(run_from(row)) for row in rows]

    def run(self, run: int) -> RunOverview | None:
        """One run."""
        row = self._connection.execute(f"{RUN_QUERY} WHERE runs.id = ?", (run,)).fetchone()
        return None if row is None else self._overview(run_from(row))

    def _overview(self, run: Run) -> RunOverview:
        counts = self._connection.execute(
            "SELECT count(*), coalesce(sum(state IN (?, ?) AND proposer != 'human' AND verdict IS NOT ?), 0),"
            " coalesce(sum(verdict = ? AND state = ?), 0), coalesce(sum(state = ?), 0)"
            " FROM candidates WHERE run = ?",
            (
                CandidateState.EVALUATED,
                CandidateState.FAILED,
                Verdict.INFRASTRUCTURE_ERROR,
                Verdict.CORRECT,
                CandidateState.EVALUATED,
                CandidateState.AWAITING_APPROVAL,
                run.id,
            ),
        ).fetchone()
        best = self._connection.execute(
            "SELECT time_us, speedup FROM candidates WHERE run = ? AND number = ?", (run.id, run.best)
        ).fetchone()
        return RunOverview(
            run,
            candidates=counts[0],
            judged=counts[1],
            correct=counts[2],
            waiting_approval=counts[3],
            best_time_us=best[0] if best else None,
            best_speedup=best[1] if best else None,
            engine=self.holder(run.id),
            spending=self.spending(run.id),
        )

    def standing(self, overview: RunOverview, now: float) -> Standing:
        """How a run stands at a moment (Unix seconds), by which `engine.ends` says when it ends."""
        run = overview.run
        used = sum(candidate.uses_budget for candidate in self.candidates(run.id))
        since_best = self._connection.execute(
            "SELECT count(*) FROM events WHERE run = :run AND id > coalesce((SELECT id FROM events WHERE run = :run"
            " AND kind = 'best_changed' ORDER BY id DESC LIMIT 1), 0) AND (kind = 'candidate_evaluated'"
            " OR (kind = 'candidate_moved' AND json_extract(body, '$.state') = :failed))",
            {"run": run.id, "failed": CandidateState.FAILED},
        ).fetchone()[0]
        return Standing(
            budget=run.budget,
            used=used,
            judged=overview.judged,
            since_best=since_best,
            active_seconds=run.active_seconds,
            now=now,
            speedup=overview.best_speedup,
            bound=bound_share(overview.best_speedup, run.facts),
        )

    def has_work(self, run: int) -> bool:
        """Whether something waits for an engine besides new proposals, or will once the run goes on."""
        row = self._connection.execute(
            "SELECT 1 FROM candidates WHERE run = ? AND NOT pruned AND (retest"
            f" OR state IN ({moves.marks(moves.WAITING)})"
            " OR (state = ? AND source_hash IS NOT NULL AND reason != ?)) LIMIT 1",
            (run, CandidateState.ABANDONED, moves.PRUNED_REASON),
        ).fetchone()
        return row is not None

    def holder(self, run: int) -> lease.Holder | None:
        """Who works, or last worked, on a run."""
        return lease.holder_of(self._connection, run)

    def task(self, run: int) -> Task:
        """The task of a run."""
        row = self._connection.execute("SELECT task FROM runs WHERE id = ?", (run,)).fetchone()
        if row is None:
            raise KeyError(f"there is no run {run} in {self.path}")
        return task_from(self._connection, row[0])

    def known_baselines(self, task: Task, fingerprint: Mapping[str, str]) -> list[dict[str, Any]]:
        """What runs measured of a task's baselines with the same device, settings and versions."""
        known = task_id_of(self._connection, task)
        return [] if known is None else baselines.find(self._connection, known, fingerprint)

    def audit(self, task: Task, dtype: str | None) -> Audit | None:
        """What an audit has found of a task with its inputs cast to a dtype; None where there was none."""
        return audits.find(self._connection, task_id_of(self._connection, task), dtype)

    # Candidates

    def candidates(self, run: int, numbers: list[int] | None = None) -> list[Candidate]:
        """All candidates of a run in the order of their numbers, or those with the given numbers."""
        if numbers is None:
            rows = self._connection.execute("SELECT * FROM candidates WHERE run = ? ORDER BY number", (run,))
        else:
            rows = self._connection.execute(
                # CROSS JOIN keeps SQLite from walking all candidates to look each up among the few that are wanted.
                "SELECT candidates.* FROM json_each(?) AS wanted CROSS JOIN candidates"
                " ON candidates.run = ? AND candidates.number = wanted.value ORDER BY number",
                (json.dumps(numbers), run),
            )
        return [candidate_from(row) for row in rows]

    def source(self, run: int, number: int) -> str | None:
        """A candidate's text, None while it has none."""
        row = self._connection.execute(
            "SELECT source_hash FROM candidates WHERE run = ? AND number = ?", (run, number)
        ).fetchone()
        return None if row is None else get_text(self._connection, row[0])

    def evaluation(self, run: int, number: int) -> Evaluation | None:
        """The latest finished evaluation of a candidate, with its log."""
        row = self._connection.execute(
            "SELECT document, log_hash FROM evaluations WHERE run = ? AND candidate = ? AND state = 'done'"
            " ORDER BY id DESC LIMIT 1",
            (run, number),
        ).fetchone()
        if row is None:
            return None
        return evaluation_from_json(row["document"], get_text(self._connection, row["log_hash"]) or "")

    def proposal(self, run: int, number: int) -> ProposalNote | None:
        """How a candidate came about."""
        row = self._connection.execute(
            "SELECT * FROM proposals WHERE run = ? AND candidate = ? ORDER BY id DESC LIMIT 1", (run, number)
        ).fetchone()
        if row is None:
            return None
        return ProposalNote(
            row["proposer"],
            row["state"],
            json.loads(row["why"]),
            json.loads(row["recipe"]) if row["recipe"] else None,
            row["failure"],
            row["started_at"],
            row["ended_at"],
        )

    def structures(self, run: int, most: int = 25) -> list[Candidate]:
        """The judged candidates of structural steps that take part in the search, fastest first, at most so many."""
        rows = self._connection.execute(
            "SELECT * FROM candidates WHERE run = ? AND step = ? AND state = ? AND NOT pruned"
            " ORDER BY speedup DESC NULLS LAST, number LIMIT ?",
            (run, Step.STRUCTURAL, CandidateState.EVALUATED, most),
        )
        return [candidate_from(row) for row in rows]

    def changes(self, run: int, parent: int, most: int = 15) -> list[Candidate]:
        """The judged edits of a candidate that take part in the search, latest first, at most so many."""
        rows = self._connection.execute(
            "SELECT * FROM candidates WHERE run = ? AND parent = ? AND step = ? AND state = ? AND NOT pruned"
            " ORDER BY number DESC LIMIT ?",
            (run, parent, Step.LOCAL, CandidateState.EVALUATED, most),
        )
        return [candidate_from(row) for row in rows]

    def repeated(self, run: int, parent: int | None, step: Step, most: int) -> int:
        """How many of the latest proposals at a place were of what the run had already, one after the other."""
        rows = self._connection.execute(
            "SELECT state FROM candidates WHERE run = ? AND parent IS ? AND step = ? AND proposer = ?"
            " AND state IN (?, ?, ?, ?) ORDER BY number DESC LIMIT ?",
            (
                run,
                parent,
                step,
                ProposerKind.LLM,
                CandidateState.DUPLICATE,
                CandidateState.EVALUATED,
                CandidateState.EVALUATING,
                CandidateState.QUEUED,
                most,
            ),
        ).fetchall()
        return sum(all(each[0] == CandidateState.DUPLICATE for each in rows[: count + 1]) for count in range(len(rows)))

    def with_source(self, run: int, source: str) -> int | None:
        """The first candidate that has exactly this text, None where there is none."""
        row = self._connection.execute(
            "SELECT min(number) FROM candidates WHERE run = ? AND source_hash = ?", (run, text_hash(source))
        ).fetchone()
        return None if row[0] is None else int(row[0])

    def latest_failures(self, run: int, most: int = 5) -> list[str]:
        """Why the latest judged candidates that take part failed, newest first."""
        rows = self._connection.execute(
            "SELECT reason FROM candidates WHERE run = ? AND state = ? AND verdict != ? AND reason IS NOT NULL"
            " AND NOT pruned ORDER BY number DESC LIMIT ?",
            (run, CandidateState.EVALUATED, Verdict.CORRECT, most),
        )
        return [row[0] for row in rows]

    # Requests to models

    def calls(self, run: int, number: int) -> list[ModelCall]:
        """The requests made to a model for a candidate, oldest first."""
        return ledger.calls_of(self._connection, run, number)

    def prompt(self, call: int) -> list[tuple[str, str]]:
        """The messages that a request sent, each with its role, exactly as they were sent."""
        return ledger.prompt_of(self._connection, call)

    def response(self, call: int) -> str:
        """What a request brought, or what has been written of it so far."""
        return ledger.response_of(self._connection, call)

    def spending(self, run: int) -> Spending:
        """What a run has asked of models, in tokens and money."""
        return ledger.spending_of(self._connection, run)

    def answer(self, run: int, number: int) -> str | None:
        """What a person answered to the prompt of a candidate, None before."""
        row = self._connection.execute(
            "SELECT argument FROM commands WHERE run = ? AND kind = ? AND candidate = ? AND state = ?"
            " ORDER BY id LIMIT 1",
            (run, CommandKind.ANSWER, number, CommandState.DONE),
        ).fetchone()
        return None if row is None else str(row[0])

    def rule_uses(self, name: str) -> list[ledger.RuleUse]:
        """How many requests to models each revision of a rule went into, by price."""
        return ledger.rule_uses(self._connection, name)

    def hints(self, run: int, number: int | None) -> list[str]:
        """What people hinted for the run, and for a candidate or one that it grew from, oldest first."""
        return steering.hints(self._connection, run, number)

    # Events and commands

    def last_event(self) -> int:
        """The id of the newest event, 0 when there is none."""
        return int(self._connection.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()[0])

    def events(self, run: int | None, after: int = 0, limit: int = 1000) -> list[RecordedEvent]:
        """The events after an id, oldest first: those of a run and those that concern all, or (None) every one."""
        rows = self._connection.execute(
            "SELECT id, run, at, kind, body FROM events WHERE id > ? AND (? IS NULL OR run = ? OR run IS NULL)"
            " ORDER BY id LIMIT ?",
            (after, run, run, limit),
        ).fetchall()
        return events_from(rows)

    def latest_events(self, run: int, limit: int = 200) -> list[RecordedEvent]:
        """The newest events of a run, oldest first."""
        rows = self._connection.execute(
            "SELECT id, run, at, kind, body FROM events WHERE run = ? ORDER BY id DESC LIMIT ?", (run, limit)
        ).fetchall()
        return events_from(reversed(rows))

    def awaited(self, run: int) -> list[DeviceAwaited]:
        """What candidates wait for that are being judged now, as far as their wait lasts."""
        rows = self._connection.execute(
            "SELECT events.body FROM events JOIN candidates"
            " ON candidates.run = events.run AND candidates.number = events.candidate WHERE events.id IN"
            " (SELECT max(id) FROM events WHERE run = ? AND kind = ? GROUP BY candidate)"
            " AND candidates.state = ? AND events.id > (SELECT max(moved.id) FROM events AS moved"
            " WHERE moved.run = events.run AND moved.candidate = events.candidate AND moved.kind = ?)"
            " ORDER BY events.id",
            (run, DeviceAwaited.kind, CandidateState.EVALUATING, CandidateMoved.kind),
        )
        found = [DeviceAwaited(**json.loads(row[0])) for row in rows]
        return [awaited for awaited in found if awaited.what]

    def events_since(self, run: int, at: float) -> list[RecordedEvent]:
        """What happened to a run since a moment in Unix seconds, oldest first."""
        rows = self._connection.execute(
            "SELECT id, run, at, kind, body FROM events WHERE run = ? AND at >= ? ORDER BY id", (run, at)
        )
        return events_from(rows)

    def best_speedup_at(self, run: int, at: float) -> float | None:
        """The best speedup that a run had found by a moment in Unix seconds."""
        row = self._connection.execute(
            "SELECT json_extract(body, '$.speedup') FROM events WHERE run = ? AND kind = 'best_changed' AND at < ?"
            " ORDER BY id DESC LIMIT 1",
            (run, at),
        ).fetchone()
        return None if row is None else row[0]

    def commands(self, run: int, state: CommandState | None = None, limit: int = 100) -> list[Command]:
        """The newest commands of a run, newest first."""
        rows = self._connection.execute(
            "SELECT * FROM commands WHERE run = ? AND (? IS NULL OR state = ?) ORDER BY id DESC LIMIT ?",
            (run, state, state, limit),
        )
        return [command_from(row) for row in rows]

    def command(self, command: int) -> Command | None:
        """One command with its answer."""
        row = self._connection.execute("SELECT * FROM commands WHERE id = ?", (command,)).fetchone()
        return None if row is None else command_from(row)

    # Skills

    def skills(self) -> SkillMemory:
        """The skill memory for reading."""
        return SkillMemory(self._connection)
