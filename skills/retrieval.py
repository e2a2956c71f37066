"""Which rules go into a prompt: those that concern the code at hand and what went wrong, within a budget.

A rule scores by what it shares with the situation; one that shares nothing is left out. Nothing here reads or writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from skills.matching import violations
from skills.records import Skill, SkillStatus

_NAMES = re.compile(r"\b(?:tl|triton|torch)\.[A-Za-z_][\w.]*|\b\w+_\w+\b")
_COMMON = frozenset({"tl.arange", "tl.load", "tl.store", "tl.constexpr", "tl.program_id", "tl.where", "tl.sum"})
"""What nearly every kernel uses: a rule about one of these concerns kernels that are yet to be written."""

_BROKEN, _FAILED, _SHARED, _GENERAL = 8.0, 10.0, 2.0, 1.0
_MOST_SHARED = 3


@dataclass(frozen=True, slots=True)
class Situation:
    """What a prompt is about: the texts it shows (the reference, kernels) and the messages of what failed.

    `faulty` is the kernel that went wrong, which may break a rule.
    """

    texts: Sequence[str]
    errors: Sequence[str] = ()
    faulty: str = ""


def relevant(
    skills: Iterable[Skill], situation: Situation, budget: int, length: Callable[[str], int] = len
) -> list[Skill]:
    """The rules to show, most relevant first.

    Args:
        skills: those to choose from; only active ones that are switched on are taken.
        situation: what the prompt is about.
        budget: how long the chosen statements may be together, as `length` counts.
        length: the length of a statement; characters by default.
    """
    usable = [skill for skill in skills if skill.status is SkillStatus.ACTIVE and skill.enabled]
    broken = {found.skill.name for found in violations(situation.faulty, usable)} if situation.faulty else set()
    scored = sorted(
        ((_score(skill, situation) + _BROKEN * (skill.name in broken), skill) for skill in usable),
        key=lambda pair: (-pair[0], pair[1].name),
    )
    chosen: list[Skill] = []
    for score, skill in scored:
        cost = length(skill.statement)
        if score <= 0 or cost > budget:
            continue
        chosen.append(skill)
        budget -= cost
    return chosen


def _score(skill: Skill, situation: Situation) -> float:
    score = 0.0
    if skill.expect and any(skill.expect in error for error in situation.errors):
        score += _FAILED
    names = set(_NAMES.findall(skill.statement))
    shared = sum(any(name in text for text in (*situation.texts, *situation.errors)) for name in names)
    score += _SHARED * min(shared, _MOST_SHARED)
    if names & _COMMON:
        score += _GENERAL
    return score
