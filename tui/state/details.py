"""Everything the inspector says about one candidate, as sections of named facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from engine.records import Candidate, Evaluation, MeasurementKind, ModelCall, Verdict
from tui.state.timing_words import measurement_lines
from tui.state.why import call_sentences, choice_sentences
from tui.state.words import (
    Glyphs,
    Piece,
    Tone,
    bytes_text,
    clean,
    label_words,
    one_line,
    outcome,
    speedup_text,
    state_words,
    time_text,
    verdict_words,
)

if TYPE_CHECKING:
    from engine.store.reader import ProposalNote


@dataclass(frozen=True, slots=True)
class Fact:
    """A named value; one without a name continues the one before."""

    name: str
    value: str = ""
    tone: Tone = Tone.PLAIN
    heading: bool = False


def _heading(text: str) -> Fact:
    return Fact(text, heading=True)


def facts(
    candidate: Candidate,
    evaluation: Evaluation | None,
    proposal: ProposalNote | None,
    glyphs: Glyphs,
    calls: Sequence[ModelCall] = (),
) -> list[Fact]:
    """What is known about a candidate, most important first."""
    found = _head(candidate, glyphs)
    if evaluation is not None:
        found += _time(evaluation)
        found += _numerics(evaluation)
        found += _kernels(evaluation)
        found += _checks(evaluation, glyphs)
    if proposal is not None:
        found += _origin(proposal, calls)
    return found


def _head(candidate: Candidate, glyphs: Glyphs) -> list[Fact]:
    said = outcome(candidate, glyphs)
    words = (
        verdict_words(candidate.verdict)
        if candidate.verdict is not None and candidate.verdict is not Verdict.CORRECT
        else "correct"
        if candidate.verdict is Verdict.CORRECT
        else state_words(candidate.state)
    )
    found = [
        _heading(f"{candidate.number}  {one_line(candidate.idea) or 'no idea yet'}"),
        Fact("verdict", f"{said.glyph} {words}", said.tone),
    ]
    if candidate.duplicate_of is not None:
        found.append(Fact("duplicate of", str(candidate.duplicate_of)))
    if candidate.reason:
        lines = [clean(line) for line in candidate.reason.splitlines() if line.strip()]
        found.append(Fact("reason", lines[0] if lines else ""))
        found += [Fact("", line) for line in lines[1:6]]
    if candidate.labels:
        found.append(Fact("labels", ", ".join(label_words(label) for label in candidate.labels), Tone.WARN))
    flags = [name for name, value in (("pinned", candidate.pinned), ("pruned", candidate.pruned)) if value]
    if flags:
        found.append(Fact("flags", ", ".join(flags), Tone.ACCENT))
    parent = f"from {candidate.parent}" if candidate.parent else "at the root"
    found.append(Fact("step", f"{candidate.step} {parent}, by {candidate.proposer}"))
    return found


def _time(evaluation: Evaluation) -> list[Fact]:
    found: list[Fact] = []
    if evaluation.time_us is not None:
        kinds = {case.measurement.kind for case in evaluation.cases if case.measurement}
        kind = " or ".join(sorted(kinds)) or str(MeasurementKind.MEASURED)
        found += [_heading("Time"), Fact("time", f"{time_text(evaluation.time_us)} {kind}", Tone.STRONG)]
    for case in evaluation.cases:
        if case.measurement is None:
            continue
        low, high = case.measurement.ci95_us
        name = "interval" if len(evaluation.cases) == 1 else clean(case.name)
        spread = f"{time_text(low)} to {time_text(high)}" if high > low else time_text(low)
        found.append(Fact(name, f"{spread}, {case.measurement.mode}, {case.measurement.cache} cache", Tone.MUTED))
    baselines = evaluation.cases[0].baselines if len(evaluation.cases) == 1 else {}
    for name in (*evaluation.speedup, *(each for each in baselines if each not in evaluation.speedup)):
        ratio = evaluation.speedup.get(name)
        word = evaluation.standing.get(name, "faster" if ratio and ratio >= 1 else "")
        parts = [speedup_text(ratio), _interval(evaluation, name), word] if ratio else []
        if name in baselines:
            parts.append(f"({time_text(baselines[name])})" if ratio else time_text(baselines[name]))
        tone = Tone.GOOD if word == "faster" and ratio and ratio > 1.0 else Tone.PLAIN
        found.append(Fact(f"vs {clean(name)}", " ".join(part for part in parts if part), tone))
    bound = [case.bound_us for case in evaluation.cases if case.bound_us is not None]
    if evaluation.bound_fraction is not None:
        at = f" (bound {time_text(bound[0])})" if len(bound) == 1 else ""
        by = f", {evaluation.bound_by}" if evaluation.bound_by else ""
        found.append(Fact("of the bound", f"{evaluation.bound_fraction:.0%}{at}{by}"))
    for case in evaluation.cases:
        found += [
            Fact(name, text, Tone.WARN if name == "note" else Tone.MUTED) for name, text in measurement_lines(case)
        ]
    return found


def _interval(evaluation: Evaluation, name: str) -> str:
    ends = evaluation.speedup_ci95.get(name)
    return f"[{ends[0]:.2f}, {ends[1]:.2f}]" if ends is not None else ""


def _numerics(evaluation: Evaluation) -> list[Fact]:
    numerics = evaluation.numerics
    if numerics is None:
        return []
    return [
        _heading("Numerics"),
        Fact("tier", numerics.tier),
        Fact("error", f"{numerics.relative_error:.1e} relative, {numerics.max_error:.1e} largest"),
        Fact("noise", f"{numerics.reference_noise:.1e} in the reference", Tone.MUTED),
    ]


def _kernels(evaluation: Evaluation) -> list[Fact]:
    if not evaluation.static:
        return []
    found = [_heading("Kernels")]
    for kernel in evaluation.static:
        spills = f", {kernel.spills} spills" if kernel.spills else ""
        found.append(
            Fact(
                clean(kernel.kernel),
                f"{kernel.registers} registers{spills}, {bytes_text(kernel.shared_bytes)} shared, {kernel.arch}",
                Tone.WARN if kernel.spills else Tone.PLAIN,
            )
        )
    return found


def _checks(evaluation: Evaluation, glyphs: Glyphs) -> list[Fact]:
    if not evaluation.checks:
        return []
    passed = sum(check.passed for check in evaluation.checks)
    found = [_heading(f"Checks  {passed} of {len(evaluation.checks)} passed")]
    for check in sorted(evaluation.checks, key=lambda each: each.passed):
        glyph, tone = (glyphs.good, Tone.GOOD) if check.passed else (glyphs.bad, Tone.BAD)
        detail = f"  {one_line(check.detail)}" if check.detail else ""
        found.append(Fact(label_words(check.name), f"{glyph}{detail}", tone))
    if evaluation.seconds:
        found.append(Fact("judged in", f"{evaluation.seconds:.1f} s", Tone.MUTED))
    return found


def _origin(proposal: ProposalNote, calls: Sequence[ModelCall]) -> list[Fact]:
    found = [_heading("Origin"), Fact("proposer", f"{clean(proposal.proposer)}, {proposal.state}")]
    if proposal.failure:
        found.append(Fact("failure", one_line(proposal.failure), Tone.BAD))
    for call in calls:
        first, *more = call_sentences(call)
        found.append(Fact(call.template.replace("_", " "), first, Tone.PLAIN if call.failure is None else Tone.WARN))
        found += [Fact("", sentence, Tone.MUTED) for sentence in more]
    if proposal.why:
        found.append(_heading("Why here"))
        found += [Fact("", sentence) for sentence in choice_sentences(proposal.why)]
    if proposal.recipe:
        found.append(_heading("Recipe"))
        found += _mapping(proposal.recipe)
    return found


def _mapping(values: Mapping[str, Any], depth: int = 0) -> list[Fact]:
    found: list[Fact] = []
    for name, value in values.items():
        label = "  " * depth + clean(str(name).replace("_", " "))
        if isinstance(value, Mapping):
            found.append(Fact(label, "none" if not value else "..." if depth >= 2 else "", Tone.MUTED))
            if depth < 2:
                found += _mapping(value, depth + 1)
        elif isinstance(value, list | tuple) and value and all(isinstance(each, Mapping) for each in value):
            for index, each in enumerate(value[:12], 1):
                found.append(Fact(f"{label} {index}", ", ".join(f"{key} {_short(item)}" for key, item in each.items())))
        else:
            found.append(Fact(label, _short(value)))
    return found


def _short(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(_short(each) for each in value) or "none"
    return one_line(str(value))


NAME_WIDTH = 15


def fact_rows(found: tuple[Fact, ...], width: int) -> list[tuple[Piece, ...]]:
    """Facts as rows: headings, names in one column, values wrapped in another."""
    room = max(12, width - NAME_WIDTH - 3)
    rows: list[tuple[Piece, ...]] = []
    for index, fact in enumerate(found):
        if fact.heading:
            if index:
                rows.append(())
            rows.append(((f" {fact.name}", Tone.TITLE),))
            continue
        name = fact.name
        if len(name) > NAME_WIDTH:
            rows.append(((f" {name}", Tone.MUTED),))
            name = ""
        for line in wrap(fact.value, room, drop_whitespace=False, replace_whitespace=False) or [""]:
            rows.append(((f" {name:<{NAME_WIDTH}} ", Tone.MUTED), (line, fact.tone)))
            name = ""
    return rows
