"""What happened to the searches since a moment, in Markdown: for the morning after."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.ends import bound_share
from engine.events import (
    BestChanged,
    CandidateEvaluated,
    CandidateMoved,
    CommandAnswered,
    Noted,
    RecordedEvent,
    Stalled,
)
from engine.records import Candidate, CandidateState, CommandState, RunState, Spending, Verdict
from tui.state.spending import spending_lines
from tui.state.words import age_text, one_line, plural, speedup_text, time_text, verdict_words

if TYPE_CHECKING:
    from engine.store.reader import RunOverview

MOST_NOTES = 8
"""How many lines of the log are repeated; the rest is counted."""


@dataclass(frozen=True, slots=True)
class RunNews:
    """A run as it stands, and its events since the moment; `before` is the best speedup it had then."""

    overview: RunOverview
    candidates: Sequence[Candidate]
    events: Sequence[RecordedEvent]
    before: float | None
    spending: Spending


def report(news: Sequence[RunNews], since: float) -> str:
    """The whole report; runs to which nothing happened are left out."""
    moved = [each for each in news if each.events]
    lines = [f"# Searches since {_moment(since)}", ""]
    if not moved:
        return "\n".join([*lines, "Nothing happened.", ""])
    lines += ["| run | task | state | judged | best before | best now |", "| --- | --- | --- | --- | --- | --- |"]
    for each in moved:
        run = each.overview.run
        cells = (str(run.id), run.task, str(run.state), f"{each.overview.judged}/{run.budget}")
        best = speedup_text(each.overview.best_speedup) or "none"
        lines.append(f"| {' | '.join(map(_cell, cells))} | {speedup_text(each.before) or 'none'} | {best} |")
    for each in moved:
        lines += ["", *_run(each)]
    return "\n".join([*lines, ""])


def _run(news: RunNews) -> list[str]:
    run = news.overview.run
    lines = [f"## Run {run.id}: {_text(run.name)}", ""]
    ended = f" by {run.ended_by}" if run.ended_by else ""
    lines.append(f"- {run.state}{ended}{f': {_text(run.reason)}' if run.reason else ''}")
    lines.append(f"- {_work(news)}")
    lines += _best(news)
    lines += _failures(news)
    lines += _people(news)
    limit = run.settings.get("max_cost")
    money = spending_lines(news.spending, news.overview.judged, run.budget, limit)
    lines += [f"- {line}" for line in money]
    lines += _notes(news)
    lines += _bests(news)
    return lines


def _work(news: RunNews) -> str:
    judged = [recorded.event for recorded in news.events if isinstance(recorded.event, CandidateEvaluated)]
    correct = sum(event.verdict == Verdict.CORRECT for event in judged)
    kind = news.overview.run.facts.get("kind")
    on = f", times {kind} on {_text(news.overview.run.device)}" if kind else ""
    worked = age_text(news.overview.run.active_seconds)
    return f"{plural(len(judged), 'candidate')} judged, {correct} correct; {worked} of work in all{on}"


def _best(news: RunNews) -> list[str]:
    run = news.overview.run
    best = next((candidate for candidate in news.candidates if candidate.number == run.best), None)
    if best is None:
        return ["- no correct candidate so far"]
    share = bound_share(best.speedup, run.facts)
    of_bound = f", {share:.0%} of what the hardware allows" if share is not None else ""
    return [
        f"- best: candidate {best.number}, {speedup_text(best.speedup)} eager ({time_text(best.time_us)}){of_bound}: "
        f"{_text(best.idea)}; its source: `kernelgrove show {run.id} {best.number} --source`"
    ]


def _failures(news: RunNews) -> list[str]:
    causes: Counter[str] = Counter()
    for recorded in news.events:
        match recorded.event:
            case CandidateEvaluated(verdict=verdict) if verdict != Verdict.CORRECT:
                causes[verdict_words(Verdict(verdict)) if verdict in tuple(Verdict) else verdict] += 1
            case CandidateMoved(state=CandidateState.FAILED):
                causes["no usable proposal"] += 1
            case CandidateMoved(state=CandidateState.DUPLICATE):
                causes["duplicate"] += 1
    if not causes:
        return []
    return ["- came to nothing: " + ", ".join(f"{count} {cause}" for cause, count in causes.most_common())]


def _people(news: RunNews) -> list[str]:
    run, lines = news.overview.run, []
    waiting = [c.number for c in news.candidates if c.state is CandidateState.AWAITING_APPROVAL]
    if waiting:
        numbers = " ".join(map(str, waiting))
        lines.append(f"- **waiting for approval**: `kernelgrove approve {run.id} {numbers}`")
    alive = news.overview.engine is not None and news.overview.engine.alive
    if not run.state.ended and not alive:
        lines.append(f"- **no engine works on it**: `kernelgrove resume {run.id}`")
    if run.state is RunState.FAILED:
        lines.append(f"- **it failed**; once that is mended: `kernelgrove resume {run.id}`")
    asked = [recorded.event for recorded in news.events if isinstance(recorded.event, CommandAnswered)]
    for event in asked:
        if event.state == CommandState.REFUSED:
            lines.append(f"- refused {event.asked}: {_text(event.answer)}")
    done = Counter(event.asked for event in asked if event.state == CommandState.DONE)
    if done:
        lines.append("- asked by people: " + ", ".join(f"{count} {kind}" for kind, count in done.most_common()))
    return lines


def _notes(news: RunNews) -> list[str]:
    notes = [
        _text(recorded.event.text)
        if isinstance(recorded.event, Noted)
        else f"no new best in {recorded.event.judged} candidates"
        for recorded in news.events
        if isinstance(recorded.event, (Noted, Stalled))
    ]
    lines = [f"- noted{f' {count} times' if count > 1 else ''}: {note}" for note, count in Counter(notes).most_common()]
    left = len(lines) - MOST_NOTES
    return [*lines[:MOST_NOTES], f"- and {left} more notes"] if left > 0 else lines


def _bests(news: RunNews) -> list[str]:
    ideas = {candidate.number: candidate.idea for candidate in news.candidates}
    rows = [
        f"| {_moment(recorded.at)} | {recorded.event.candidate} | {speedup_text(recorded.event.speedup)} | "
        f"{_cell(ideas.get(recorded.event.candidate, ''))} |"
        for recorded in news.events
        if isinstance(recorded.event, BestChanged) and recorded.event.candidate is not None
    ]
    if not rows:
        return []
    return ["", "| new best at | candidate | against eager | idea |", "| --- | --- | --- | --- |", *rows]


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def _text(text: str) -> str:
    """One line that Markdown shows as it is."""
    return "".join(f"\\{sign}" if sign in "\\`*_<>#[]|" else sign for sign in one_line(text))


def _cell(text: str) -> str:
    return _text(text)
