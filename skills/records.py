"""The skill memory's records."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SkillStatus(StrEnum):
    """Whether a rule is believed; only active ones that are switched on are used."""

    ACTIVE = "active"
    UNVERIFIED = "unverified"
    DISPUTED = "disputed"
    RETIRED = "retired"


class SkillKind(StrEnum):
    """`validity`: what fails. `speed`: what helps."""

    VALIDITY = "validity"
    SPEED = "speed"


@dataclass(frozen=True, slots=True)
class Skill:
    """The current revision of one rule.

    `stage` is where breaking the rule shows: compile, run or numerics. `pattern` is an optional
    ast-grep pattern that finds violations. `probe` is a complete Python module whose kernel must fail
    with a message that contains `expect`; `counter_probe` is the repaired module, which must pass.
    `changed_at` is in Unix seconds.
    """

    id: int
    name: str
    revision: int
    kind: SkillKind
    statement: str
    scope: str
    stage: str
    pattern: str
    probe: str
    counter_probe: str
    expect: str
    status: SkillStatus
    enabled: bool
    author: str
    reason: str
    changed_at: float
