"""The run's log: every event as one sentence with a tone, and the judge's words on one candidate."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from textwrap import wrap

from engine.events import (
    BestChanged,
    CandidateAdded,
    CandidateEvaluated,
    CandidateFlagged,
    CandidateMoved,
    CommandAnswered,
    CommandQueued,
    DeviceAwaited,
    EngineStarted,
    Event,
    Noted,
    RecordedEvent,
    RunChanged,
    SkillChanged,
    Stalled,
    StepExhausted,
    TaskOpened,
    candidate_of,
)
from engine.records import CandidateState, CommandState, Evaluation, Verdict
from tui.state.words import Piece, Tone, clean, one_line, speedup_text, time_text, verdict_words

KEPT_LINES = 2_000
"""How many lines of a log are kept on the screen; the database has them all."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line; `at` is in Unix seconds, None for a line that continues."""

    text: str
    tone: Tone = Tone.PLAIN
    at: float | None = None
    candidate: int | None = None


def sentence(event: Event) -> tuple[str, Tone]:
    """An event as a sentence."""
    match event:
        case RunChanged(state=state, reason=reason):
            return f"run {state}{_because(reason)}", Tone.STRONG
        case EngineStarted(pid=pid, host=host):
            return f"engine started: process {pid} on {host}", Tone.MUTED
        case TaskOpened(device=device, measurement=kind, baselines=baselines):
            times = ", ".join(f"{name} {time_text(value)}" for name, value in baselines.items())
            return f"task opened on {device}, time {kind}{': ' + times if times else ''}", Tone.MUTED
        case CandidateAdded(parent=parent, step=step, proposer=proposer):
            return f"{step} step {f'from {parent}' if parent else 'at the root'}, asked of {proposer}", Tone.MUTED
        case CandidateMoved(state=state, reason=reason):
            return f"{state.replace('_', ' ')}{_because(reason)}", _moved_tone(state)
        case CandidateEvaluated():
            return _evaluated(event)
        case DeviceAwaited(what=what):
            return (f"waits for the device: {what}", Tone.WARN) if what else ("goes on", Tone.MUTED)
        case BestChanged(candidate=None):
            return "no best any more", Tone.WARN
        case BestChanged(candidate=number, time_us=time_us, speedup=speedup):
            return f"new best: {number} at {speedup_text(speedup)}, {time_text(time_us)}", Tone.GOOD
        case CandidateFlagged(flag=flag, value=value, subtree=subtree):
            return f"{'' if value else 'no longer '}{flag}{f', {subtree} in all' if subtree > 1 else ''}", Tone.ACCENT
        case StepExhausted(parent=parent, step=step, reason=reason):
            return f"no more {step} steps {f'from {parent}' if parent else 'at the root'}{_because(reason)}", Tone.MUTED
        case Stalled(judged=judged):
            return f"no new best in the last {judged} candidates", Tone.WARN
        case CommandQueued(asked=asked, candidate=candidate):
            return f"asked: {asked}{f' {candidate}' if candidate else ''}", Tone.ACCENT
        case CommandAnswered(asked=asked, state=state, answer=answer):
            return f"{asked} {state}{_because(answer)}", Tone.BAD if state == CommandState.REFUSED else Tone.ACCENT
        case SkillChanged(name=name, revision=revision, change=change):
            return f"skill {name} {change}, revision {revision}", Tone.ACCENT
        case Noted(text=text):
            return text, Tone.PLAIN


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def _moved_tone(state: str) -> Tone:
    tones = {
        CandidateState.AWAITING_APPROVAL: Tone.WARN,
        CandidateState.FAILED: Tone.BAD,
        CandidateState.EVALUATING: Tone.PLAIN,
    }
    return tones.get(CandidateState(state), Tone.MUTED) if state in tuple(CandidateState) else Tone.MUTED


def _evaluated(event: CandidateEvaluated) -> tuple[str, Tone]:
    if event.verdict == Verdict.CORRECT:
        return f"correct, {speedup_text(event.speedup) or '?'} in {time_text(event.time_us)}", Tone.GOOD
    words = verdict_words(Verdict(event.verdict)) if event.verdict in tuple(Verdict) else event.verdict
    return f"{words}{_because(event.reason)}", Tone.BAD


def log_line(recorded: RecordedEvent) -> LogLine:
    """A recorded event as a line of the log."""
    text, tone = sentence(recorded.event)
    return LogLine(one_line(text), tone, recorded.at, candidate_of(recorded.event))


def worth_telling(event: Event) -> bool:
    """Whether an event belongs into the run's log; the small steps of each candidate are in its own."""
    quiet = (CandidateState.QUEUED, CandidateState.EVALUATING)
    return not (isinstance(event, CandidateMoved) and event.state in quiet)


class RunLog:
    """The lines of a run, oldest first, capped."""

    def __init__(self) -> None:
        self.lines: list[LogLine] = []
        self._all: list[LogLine] = []

    def fold_in(self, events: Iterable[RecordedEvent]) -> None:
        """Adds events."""
        for event in events:
            line = log_line(event)
            self._all.append(line)
            if worth_telling(event.event):
                self.lines.append(line)
        for lines in (self.lines, self._all):
            del lines[: max(0, len(lines) - KEPT_LINES)]

    def of(self, number: int | None) -> list[LogLine]:
        """The lines that concern one candidate."""
        return [line for line in self._all if line.candidate == number]


def evaluation_lines(evaluation: Evaluation | None) -> list[LogLine]:
    """What the judge wrote down about a candidate: reason, checks, and the log of its process."""
    if evaluation is None:
        return []
    lines: list[LogLine] = []
    if evaluation.reason:
        tone = Tone.PLAIN if evaluation.correct else Tone.BAD
        lines.extend(LogLine(clean(part), tone) for part in evaluation.reason.splitlines())
    for check in evaluation.checks:
        if not check.passed:
            detail = f": {check.detail}" if check.detail else ""
            lines.append(LogLine(clean(f"check {check.name} failed{detail}"), Tone.BAD))
    if evaluation.log:
        lines.append(LogLine("log of its process", Tone.TITLE))
        kept = evaluation.log.splitlines()[-KEPT_LINES:]
        lines.extend(LogLine(clean(part)) for part in kept)
    return lines


def clock_text(at: float | None) -> str:
    """The local time of day of a line."""
    return " " * 8 if at is None else time.strftime("%H:%M:%S", time.localtime(at))


def wrapped(line: LogLine, width: int, current: int | None) -> list[tuple[Piece, ...]]:
    """A line as rows of at most `width` cells; the lines of the `current` candidate stand out."""
    lead: list[Piece] = []
    if line.at is not None:
        lead.append((f"{clock_text(line.at)} ", Tone.MUTED))
        number = "" if line.candidate is None else f"{line.candidate}"
        lead.append((f"{number:>4} ", Tone.ACCENT if line.candidate == current else Tone.MUTED))
    indent = sum(len(text) for text, _ in lead)
    room = max(10, width - indent)
    parts = wrap(line.text, room, drop_whitespace=False, replace_whitespace=False) or [""]
    rows: list[tuple[Piece, ...]] = [(*lead, (parts[0], line.tone))]
    rows.extend(((" " * indent, Tone.PLAIN), (part, line.tone)) for part in parts[1:])
    return rows
