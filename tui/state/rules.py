"""The skill memory as rows: the list, and one rule with everything known about it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

from skills.records import Evidence, Relation, Skill, SkillStatus, Verification
from tui.state.code import colour
from tui.state.words import Glyphs, Piece, Tone, clean, one_line, plural

_RELATIONS = {
    Relation.FAILED_THIS_WAY: "failed this way",
    Relation.OBEYED: "obeyed it",
    Relation.CONTRADICTS: "broke it and were correct",
    Relation.MEASURED: "measured it",
}


@dataclass(frozen=True, slots=True)
class RuleDetail:
    """A rule with its history, its evidence and what its probes said; times in Unix seconds."""

    skill: Skill
    history: tuple[Skill, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    verifications: tuple[tuple[Verification, float], ...] = ()


def status_sign(skill: Skill, glyphs: Glyphs) -> tuple[str, Tone]:
    """A glyph and a tone for how much a rule is believed."""
    match skill.status:
        case SkillStatus.ACTIVE:
            return glyphs.good, Tone.GOOD
        case SkillStatus.UNVERIFIED:
            return glyphs.waiting, Tone.WARN
        case SkillStatus.DISPUTED:
            return glyphs.warn, Tone.BAD
        case SkillStatus.RETIRED:
            return glyphs.gone, Tone.MUTED


def in_use(skill: Skill) -> bool:
    """Whether proposers are given the rule."""
    return skill.enabled and skill.status is SkillStatus.ACTIVE


def list_row(
    skill: Skill, counts: Mapping[Relation, int], glyphs: Glyphs
) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """One line of the list: sign and name on the left; evidence, status and switch on the right."""
    sign, tone = status_sign(skill, glyphs)
    dim = not in_use(skill)
    left: list[Piece] = [(f" {sign} ", tone), (clean(skill.name), Tone.MUTED if dim else Tone.PLAIN)]
    against = counts.get(Relation.CONTRADICTS, 0)
    support = counts.get(Relation.FAILED_THIS_WAY, 0) + counts.get(Relation.OBEYED, 0)
    right: list[Piece] = []
    if support:
        right.append((f"{support} for ", Tone.MUTED))
    if against:
        right.append((f"{against} against ", Tone.WARN))
    right.append((f"{skill.status:<10} ", tone))
    right.append(("on  " if skill.enabled else "off ", Tone.PLAIN if skill.enabled else Tone.MUTED))
    return tuple(left), tuple(right)


def evidence_words(evidence: Sequence[Evidence]) -> list[str]:
    """How many candidates say what, and which they are."""
    lines = []
    for relation, words in _RELATIONS.items():
        found = [each for each in evidence if each.relation is relation]
        if found:
            named = ", ".join(f"{each.run}:{each.candidate}" for each in found[-8:])
            lines.append(f"{plural(len(found), 'candidate')} {words}: {named}")
    return lines


def rule_rows(detail: RuleDetail, glyphs: Glyphs, width: int) -> list[tuple[Piece, ...]]:
    """Everything about a rule, laid out for a width."""
    skill = detail.skill
    sign, tone = status_sign(skill, glyphs)
    rows: list[tuple[Piece, ...]] = [((f" {clean(skill.name)}", Tone.TITLE),)]
    switch = "on" if skill.enabled else "off"
    rows.append(((f" {sign} {skill.status}", tone), (f", switched {switch}, {skill.kind} rule", Tone.PLAIN)))
    rows.append(())
    rows += _text(clean(skill.statement), width)
    rows.append(())
    for name, value in (("scope", skill.scope), ("stage", skill.stage), ("expects", skill.expect)):
        if value:
            rows += _named(name, one_line(value), width)
    if skill.reason:
        rows += _named("reason", one_line(skill.reason), width)
    for title, source in (
        ("Pattern: finds breaches", skill.pattern),
        ("Probe: must fail", skill.probe),
        ("Counter-probe: must pass", skill.counter_probe),
    ):
        if source.strip():
            rows += [(), ((f" {title}", Tone.TITLE),)]
            rows += [(("  ", Tone.PLAIN), *line) for line in colour(source.strip("\n"))]
    words = evidence_words(detail.evidence)
    rows += [(), ((" Evidence", Tone.TITLE),)]
    rows += [row for line in words for row in _text(line, width)] or [((" no candidate has met it yet", Tone.MUTED),)]
    if detail.verifications:
        rows += [(), ((" Probes were run", Tone.TITLE),)]
        for verification, at in reversed(detail.verifications[-5:]):
            rows += _named(_day(at), f"{verification.verdict}: {one_line(verification.detail)}", width)
    rows += [(), ((" History", Tone.TITLE),)]
    for revision in reversed(detail.history):
        switch = "on" if revision.enabled else "off"
        reason = f": {one_line(revision.reason)}" if revision.reason else ""
        text = f"revision {revision.revision} by {clean(revision.author)}, {revision.status}, {switch}{reason}"
        rows += _named(_day(revision.changed_at), text, width)
    return rows


def _day(at: float) -> str:
    return time.strftime("%d %b %H:%M", time.localtime(at))


def _text(text: str, width: int) -> list[tuple[Piece, ...]]:
    return [((f" {line}", Tone.PLAIN),) for line in wrap(text, max(20, width - 2))]


def _named(name: str, value: str, width: int) -> list[tuple[Piece, ...]]:
    rows: list[tuple[Piece, ...]] = []
    for line in wrap(value, max(20, width - 16)) or [""]:
        rows.append(((f" {name:<13} ", Tone.MUTED), (line, Tone.PLAIN)))
        name = ""
    return rows
