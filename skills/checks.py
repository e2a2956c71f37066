"""What a rule may contain. Every error is one sentence that names the field."""

from __future__ import annotations

import re
from dataclasses import fields, replace

from skills.errors import SkillError
from skills.matching import check_pattern
from skills.records import STAGES, Rule, SkillKind

MAX_LENGTHS = {
    "name": 60,
    "statement": 500,
    "scope": 200,
    "stage": 20,
    "pattern": 4_000,
    "probe": 20_000,
    "counter_probe": 20_000,
    "expect": 400,
}
"""The longest text of each field, in characters. Statements enter prompts, so each one costs tokens."""

MAX_REASON = 1_000

_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Characters that would steer a terminal or cannot be stored: all controls but tab and newline, lone surrogates."""


def check_text(field: str, text: str, limit: int) -> str:
    """Return the text if a terminal can show it and it is short enough.

    Raises:
        SkillError: with the field and what is wrong.
    """
    if found := _CONTROL.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise SkillError(
            f"The {field} has the character U+{ord(found.group()):04X} in line {line}, "
            "which a terminal cannot show: remove it."
        )
    if len(text) > limit:
        raise SkillError(f"The {field} has {len(text)} characters; at most {limit} are allowed.")
    return text


def check_rule(rule: Rule) -> Rule:
    """Return the rule with blanks around its one-line fields removed.

    Raises:
        SkillError: if a field is missing, too long, not showable or not of its form.
    """
    rule = replace(
        rule,
        name=rule.name.strip(),
        statement=rule.statement.strip(),
        scope=rule.scope.strip(),
        stage=rule.stage.strip(),
        pattern=rule.pattern.strip(),
        expect=rule.expect.strip(),
    )
    for field in fields(rule):
        if field.name in MAX_LENGTHS:
            check_text(field.name, getattr(rule, field.name), MAX_LENGTHS[field.name])
    if not _SLUG.fullmatch(rule.name):
        raise SkillError(
            f"The name {rule.name!r} is not usable: write lower-case words joined by hyphens, like no-break-in-loops."
        )
    if not any(letter.isalpha() for letter in rule.statement):
        raise SkillError("The statement is empty: say in one sentence what fails and what to write instead.")
    if rule.kind not in tuple(SkillKind):
        raise SkillError(f"The kind {str(rule.kind)!r} is unknown: write {' or '.join(SkillKind)}.")
    if rule.stage not in STAGES:
        raise SkillError(f"The stage {rule.stage!r} is unknown: write {', '.join(STAGES[:-1])} or {STAGES[-1]}.")
    if rule.kind is SkillKind.VALIDITY and rule.probe.strip() and not rule.expect:
        raise SkillError("The field expect is empty: give a part of the message with which the probe must fail.")
    check_pattern(rule.pattern)
    return replace(rule, kind=SkillKind(rule.kind))


def check_reason(text: str) -> str:
    """Return the reason of a change without blanks around it.

    Raises:
        SkillError: if it is too long or cannot be shown.
    """
    return check_text("reason", text.strip(), MAX_REASON)


def check_author(text: str) -> str:
    """Return the author of a change without blanks around the name.

    Raises:
        SkillError: if it is empty, too long or cannot be shown.
    """
    author = check_text("author", text.strip(), 100)
    if not author:
        raise SkillError("The author is empty: every change names who made it.")
    return author
