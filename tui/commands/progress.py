"""Follows a run without a screen: a line for each thing that happened, and the result at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from engine.events import (
    BestChanged,
    CandidateEvaluated,
    CandidateMoved,
    CommandAnswered,
    DeviceAwaited,
    Noted,
    RecordedEvent,
    RunChanged,
    TaskOpened,
)
from engine.records import CandidateState, soundness_line
from engine.result_line import result_line
from engine.store.reader import Reader, RunOverview
from tui.commands.output import candidate_line
from tui.state.spending import spending_lines
from tui.state.words import clean, speedup_text, time_text

_POLL_S = 0.2


def follow(db: Path, run: int, say: Callable[[str], None]) -> tuple[Reader, RunOverview]:
    """Tells what happens until the run ends or its engine dies; returns an open reader and the last state."""
    reader = Reader(db)
    cursor = 0
    while True:
        overview = reader.run(run)
        assert overview is not None
        events = reader.events(run, cursor)
        for recorded in events:
            cursor = recorded.id
            line = _line(reader, run, recorded)
            if line:
                say(line)
        if not events and (overview.run.state.ended or not (overview.engine and overview.engine.alive)):
            return reader, overview
        if not events:
            time.sleep(_POLL_S)


def _line(reader: Reader, run: int, recorded: RecordedEvent) -> str | None:
    event = recorded.event
    match event:
        case RunChanged():
            return f"run {run} is {event.state}" + (f": {event.reason}" if event.reason else "")
        case TaskOpened():
            times = ", ".join(f"{name} {time_text(time_us)}" for name, time_us in event.baselines.items())
            return f"{event.measurement} on {event.device}; {times}"
        case CandidateEvaluated():
            (candidate,) = reader.candidates(run, [event.candidate])
            return candidate_line(candidate)
        case CandidateMoved() if event.state in (
            CandidateState.DUPLICATE,
            CandidateState.FAILED,
            CandidateState.AWAITING_APPROVAL,
            CandidateState.REJECTED,
        ):
            (candidate,) = reader.candidates(run, [event.candidate])
            return candidate_line(candidate)
        case BestChanged() if event.candidate is not None:
            times = f"{time_text(event.time_us)}, {speedup_text(event.speedup)} eager"
            return f"      {event.candidate} is the best so far: {times}"
        case DeviceAwaited() if event.what:
            return f"      {event.candidate} waits for the device: {event.what}"
        case CommandAnswered():
            return f"{event.asked}: {event.answer}"
        case Noted():
            return event.text
        case _:
            return None


def result_text(reader: Reader, overview: RunOverview) -> str:
    """The outcome of a run in a few lines, with the best candidate's source."""
    run = overview.run
    lines = [
        "",
        f"run {run.id} ({run.task}): {overview.judged} candidates judged, {overview.correct} correct, "
        f"{run.active_seconds:.0f} s",
        *spending_lines(overview.spending, overview.judged, overview.judged, run.settings.get("max_cost")),
    ]
    if run.best is None:
        lines.append("no correct candidate was found")
        return "\n".join(lines)
    evaluation = reader.evaluation(run.id, run.best)
    (candidate,) = reader.candidates(run.id, [run.best])
    lines.append(f"best: candidate {run.best}, correct, {candidate.idea}")
    if evaluation is not None:
        kind = evaluation.cases[0].measurement.kind if evaluation.cases and evaluation.cases[0].measurement else ""
        lines.append(f"      {time_text(evaluation.time_us)} ({kind}), {result_line(evaluation)}")
    if run.audit is not None and (warning := soundness_line(run.audit)):
        lines.append(f"      {clean(warning)}")
    lines.append(f"      its source: kernelgrove show {run.id} {run.best} --source")
    return "\n".join(lines)
