"""One run as its screen knows it: folded from updates, told in a status line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.ends import Standing, forecast
from engine.events import CommandAnswered, RecordedEvent
from engine.records import Candidate, RunState, Soundness
from engine.settings import parse_run_settings
from tui.state.chart import Progress, progress
from tui.state.log import RunLog
from tui.state.nodes import Change
from tui.state.spending import spent_text
from tui.state.tree import RunTree
from tui.state.words import (
    Glyphs,
    Tone,
    age_text,
    clean,
    duration_text,
    run_words,
    speedup_text,
    time_text,
)

if TYPE_CHECKING:
    from engine.store.reader import RunOverview

HEARTBEAT_WARNING_S = 10.0
"""An engine silent for longer than this is worth a warning."""


@dataclass(frozen=True, slots=True)
class RunUpdate:
    """What happened to a run since the last look. `first` brings everything there is."""

    overview: RunOverview
    candidates: tuple[Candidate, ...] = ()
    events: tuple[RecordedEvent, ...] = ()
    first: bool = False


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the status line; those of higher `order` go first when there is no room."""

    text: str
    tone: Tone = Tone.PLAIN
    order: int = 0


class RunView:
    """The state of the run screen without the screen."""

    def __init__(self, run: int) -> None:
        self.run_id = run
        self.overview: RunOverview | None = None
        self.tree = RunTree()
        self.log = RunLog()
        self.progress = Progress()
        self.answers: list[CommandAnswered] = []

    def fold_in(self, update: RunUpdate) -> Change:
        """Takes in an update; `answers` then holds what commands were answered in it."""
        self.overview = update.overview
        self.tree.allowed = tuple(update.overview.run.settings.get("allow", ()))
        change = self.tree.fold_in(update.candidates)
        self.log.fold_in(update.events)
        if update.candidates:
            self.progress = progress(self.tree, self.tree.allowed)
        self.answers = (
            [] if update.first else [event.event for event in update.events if isinstance(event.event, CommandAnswered)]
        )
        return change

    @property
    def engine_alive(self) -> bool:
        """Whether an engine works on the run, as far as the last update tells."""
        return self.overview is not None and self.overview.engine is not None and self.overview.engine.alive

    @property
    def waiting(self) -> int:
        """How many candidates wait for approval."""
        return 0 if self.overview is None else self.overview.waiting_approval

    @property
    def times(self) -> str:
        """Whether the run's times are measured or modelled; empty until its task is open."""
        return "" if self.overview is None else str(self.overview.run.facts.get("kind", ""))

    def status(self, now: float, glyphs: Glyphs) -> list[Segment]:
        """The status line's parts in the order in which they are shown."""
        if self.overview is None:
            return [Segment(f"run {self.run_id}", Tone.STRONG), Segment("reading", Tone.MUTED)]
        run = self.overview.run
        words, tone = run_words(run.state)
        if run.state is RunState.RUNNING and not run.facts:
            words = "opening the task"
        parts = [Segment(f"{run.id} {clean(run.name)}", Tone.STRONG), Segment(words, tone)]
        parts.append(Segment(duration_text(self._elapsed(now)), Tone.MUTED, order=5))
        parts.append(Segment(f"{self.overview.judged}/{run.budget}", order=1))
        if left := self._left(now):
            parts.append(Segment(left, Tone.MUTED, order=6))
        parts.append(Segment(f"{self.overview.correct} correct", order=6))
        if run.best is not None:
            best = f"{glyphs.best} {speedup_text(self.overview.best_speedup) or time_text(self.overview.best_time_us)}"
            parts.append(Segment(f"{best} #{run.best}", Tone.GOOD, order=1))
        if self.waiting:
            parts.append(Segment(f"{glyphs.waiting} {self.waiting} waiting", Tone.WARN, order=2))
        if spent := spent_text(self.overview.spending, run.settings.get("max_cost")):
            parts.append(Segment(spent, order=3))
        if run.audit is not None and run.audit.verdict is not Soundness.SOUND:
            parts.append(Segment(f"task {str(run.audit.verdict).replace('_', ' ')}", Tone.WARN, order=2))
        if run.device:
            parts.append(Segment(clean(run.device), Tone.MUTED, order=7))
        parts.append(self._engine(now))
        if self.tree.following:
            parts.append(Segment("FOLLOW", Tone.ACCENT, order=3))
        elif self.tree.unseen:
            parts.append(Segment(f"{self.tree.unseen} new (f)", Tone.ACCENT, order=3))
        return parts

    def _elapsed(self, now: float) -> float:
        """Seconds an engine has worked, with what passed since its last heartbeat."""
        if self.overview is None:
            return 0.0
        run, engine = self.overview.run, self.overview.engine
        if run.state is RunState.RUNNING and engine is not None and self.engine_alive:
            return run.active_seconds + min(HEARTBEAT_WARNING_S, max(0.0, now - engine.heartbeat_at))
        return run.active_seconds

    def _left(self, now: float) -> str:
        """How long the run will go on at its present pace, "" where nobody can say."""
        if self.overview is None or not self.engine_alive or self.overview.run.state is not RunState.RUNNING:
            return ""
        run, judged = self.overview.run, self.overview.judged
        standing = Standing(run.budget, judged, judged, 0, self._elapsed(now), now)
        ahead = forecast(parse_run_settings(run.settings), standing)
        return f"about {age_text(ahead.seconds)} left" if ahead is not None else ""

    def _engine(self, now: float) -> Segment:
        if self.overview is None:
            return Segment("")
        run, engine = self.overview.run, self.overview.engine
        if engine is None or not self.engine_alive:
            if run.state.ended:
                return Segment(f"ended{': ' + clean(run.ended_by) if run.ended_by else ''}", Tone.MUTED, order=4)
            return Segment("no engine (p)", Tone.WARN, order=2)
        silent = now - engine.heartbeat_at
        if silent > HEARTBEAT_WARNING_S:
            return Segment(f"! engine silent for {age_text(silent)}", Tone.BAD, order=1)
        return Segment(f"engine {age_text(silent)}", Tone.MUTED, order=4)

    def warning(self, now: float) -> str:
        """What the person should know at once, "" if there is nothing."""
        if self.overview is None:
            return ""
        run, engine = self.overview.run, self.overview.engine
        if engine is not None and self.engine_alive:
            silent = now - engine.heartbeat_at
            return f"the engine has been silent for {age_text(silent)}" if silent > HEARTBEAT_WARNING_S else ""
        if run.state is RunState.FAILED:
            return f"the run failed: {clean(run.reason or 'no reason was given')}"
        return "" if run.state.ended else "no engine works on this run; p resumes it"

    def prune_question(self, number: int) -> str:
        """What is asked before a subtree is pruned."""
        members = [self.tree.candidate(member) for member in self.tree.subtree(number)]
        open_work = sum(1 for member in members if member is not None and not member.state.final)
        waiting = f", {open_work} of them not judged yet" if open_work else ""
        if len(members) == 1:
            return f"Prune {number}, which has nothing below{waiting and ' and is not judged yet'}?"
        return f"Prune {number} and what grew from it: {len(members)} in all{waiting}?"


def fit(parts: list[Segment], width: int, measure: Callable[[str], int] = len, gap: int = 3) -> list[Segment]:
    """Leaves out the least important parts until the rest fits into `width` cells."""
    kept = list(parts)
    while len(kept) > 1 and sum(measure(part.text) for part in kept) + gap * (len(kept) - 1) > width:
        least = max(kept, key=lambda part: part.order)
        if least.order == 0:
            break
        kept.remove(least)
    return kept
