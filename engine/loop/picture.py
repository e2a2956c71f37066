"""What the loop knows of its run's tree, kept up to date by the events that the store writes with each change.

A run of ten thousand candidates is not read anew for each expansion: only what the new events name is.
"""

from __future__ import annotations

from engine.ends import Standing, bound_share
from engine.events import BestChanged, CandidateEvaluated, CandidateFlagged, CandidateMoved, Event, Stalled
from engine.records import Candidate, CandidateState, ProposerKind, Run, Step
from engine.search.snapshot import ROOT, Snapshot, allowed_steps, take_snapshot
from engine.settings import RunSettings
from engine.store.run_store import RunStore


class Picture:
    """The candidates of a run, their states counted, and the policy's snapshot of them."""

    def __init__(self, store: RunStore, settings: RunSettings) -> None:
        self._store = store
        self._start = 1 if settings.start else None
        self._steps = allowed_steps(settings.policy)
        self._exhausted = store.exhaustions()
        self._cursor = 0
        self._asked = 0
        self._states: dict[CandidateState, set[int]] = {state: set() for state in CandidateState}
        self.candidates: dict[int, Candidate] = {}
        self.snapshot = Snapshot()
        self.retests: set[int] = set()
        self.used = 0
        """How many candidates use budget."""
        self.judged = 0
        """How many of them have been judged, or failed."""
        self.since_best = 0
        """How many candidates were judged since the last new best."""
        self.stall_told = False
        self.repeats = 0
        """How many proposals in a row repeated what the run holds."""
        self.refresh()

    def refresh(self) -> None:
        """Takes in what was committed since the last time, by whomever."""
        events = self._store.events(self._cursor)
        if not events and self._cursor:
            return
        whole = not self._cursor
        changed: set[int] = set()
        for recorded in events:
            self._cursor = recorded.id
            self._count(recorded.event)
            if (number := getattr(recorded.event, "candidate", None)) is not None:
                changed.add(number)
            # Pruning and restoring concern a whole subtree, and come seldom.
            whole |= isinstance(recorded.event, CandidateFlagged) and recorded.event.flag == "pruned"
        if whole:
            self._read_all()
        elif changed:
            self._take_in(self._store.some_candidates(sorted(changed)))

    def _count(self, event: Event) -> None:
        match event:
            case BestChanged():
                self.since_best, self.stall_told = 0, False
            case CandidateEvaluated():
                self.since_best += 1
                self.repeats = 0
            case CandidateMoved(state=CandidateState.FAILED):
                self.since_best += 1
            case CandidateMoved(state=CandidateState.DUPLICATE):
                self.repeats += 1
            case Stalled():
                self.stall_told = True

    def _read_all(self) -> None:
        for numbers in self._states.values():
            numbers.clear()
        self.retests.clear()
        self.candidates, self.used, self.judged = {}, 0, 0
        for candidate in self._store.candidates():
            self._file(candidate)
        self._asked = sum(candidate.proposer is not ProposerKind.HUMAN for candidate in self.candidates.values())
        self._take_picture()

    def _take_picture(self) -> None:
        # Without structures left anywhere, asking at each node in turn would only find that out again.
        left = self._steps - {Step.STRUCTURAL} if (ROOT, Step.STRUCTURAL) in self._exhausted else self._steps
        self.snapshot = take_snapshot(self.candidates.values(), self._exhausted, left, self._start)

    def _take_in(self, changed: list[Candidate]) -> None:
        for candidate in changed:
            if (before := self.candidates.get(candidate.number)) is not None:
                self._states[before.state].discard(candidate.number)
                self._tally(before, -1)
            elif candidate.proposer is not ProposerKind.HUMAN:
                self._asked += 1
            self._file(candidate)
        self.snapshot = self.snapshot.after(changed, asked=self._asked)

    def _file(self, candidate: Candidate) -> None:
        self.candidates[candidate.number] = candidate
        self._states[candidate.state].add(candidate.number)
        self._tally(candidate, 1)
        (self.retests.add if candidate.retest else self.retests.discard)(candidate.number)

    def _tally(self, candidate: Candidate, by: int) -> None:
        if candidate.uses_budget:
            self.used += by
            self.judged += by if candidate.state in (CandidateState.EVALUATED, CandidateState.FAILED) else 0

    def exhaust(self, number: int, step: Step, reason: str) -> None:
        """Keeps that there is nothing more to offer for a step at a node."""
        self._exhausted.add((number, step))
        self._store.add_exhaustion(None if number == ROOT else number, step, reason)
        if number == ROOT:
            self._take_picture()
        else:
            self.snapshot = self.snapshot.after((), {(number, step)})

    # Questions

    def in_states(self, *states: CandidateState) -> list[Candidate]:
        """The candidates in some states, in the order of their numbers."""
        numbers = sorted(number for state in states for number in self._states[state])
        return [self.candidates[number] for number in numbers]

    def count(self, *states: CandidateState) -> int:
        """How many candidates are in some states."""
        return sum(len(self._states[state]) for state in states)

    @property
    def next_number(self) -> int:
        """The number that the next candidate gets."""
        return max(self.candidates, default=0) + 1

    def standing(self, run: Run, now: float) -> Standing:
        """How the run stands at a moment (Unix seconds)."""
        best = self.candidates.get(run.best or 0)
        speedup = best.speedup if best is not None else None
        return Standing(
            budget=run.budget,
            used=self.used,
            judged=self.judged,
            since_best=self.since_best,
            active_seconds=run.active_seconds,
            now=now,
            speedup=speedup,
            bound=bound_share(speedup, run.facts),
        )
