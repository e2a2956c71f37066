"""The skill memory's records."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypedDict


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


STAGES = ("compile", "run", "numerics")
"""Where breaking a rule shows."""


class RuleChanges(TypedDict, total=False):
    """The fields of a rule that an edit may set."""

    name: str
    kind: SkillKind
    statement: str
    scope: str
    stage: str
    pattern: str
    probe: str
    counter_probe: str
    expect: str


@dataclass(frozen=True, slots=True)
class Rule:
    """What a rule claims, as it stands in a file, before the memory gives it an id and a status.

    The fields mean what they mean in `Skill`. `revision` is the one that the text was made from, and
    None in a text that did not come from the memory.
    """

    name: str
    statement: str
    kind: SkillKind = SkillKind.VALIDITY
    scope: str = ""
    stage: str = "compile"
    pattern: str = ""
    probe: str = ""
    counter_probe: str = ""
    expect: str = ""
    revision: int | None = None

    def changes(self) -> RuleChanges:
        """Every field that an edit may set, with this rule's value."""
        return RuleChanges(
            name=self.name,
            kind=self.kind,
            statement=self.statement,
            scope=self.scope,
            stage=self.stage,
            pattern=self.pattern,
            probe=self.probe,
            counter_probe=self.counter_probe,
            expect=self.expect,
        )


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

    def rule(self) -> Rule:
        """What the skill claims, with the revision it stands at."""
        return Rule(
            name=self.name,
            statement=self.statement,
            kind=self.kind,
            scope=self.scope,
            stage=self.stage,
            pattern=self.pattern,
            probe=self.probe,
            counter_probe=self.counter_probe,
            expect=self.expect,
            revision=self.revision,
        )


class Relation(StrEnum):
    """What a candidate says about a rule."""

    FAILED_THIS_WAY = "failed_this_way"
    OBEYED = "obeyed"
    CONTRADICTS = "contradicts"
    MEASURED = "measured"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One candidate, named by run and number, that speaks for or against one revision of a rule."""

    skill: int
    revision: int
    run: int
    candidate: int
    relation: Relation
    detail: str
    toolchain: str
    created_at: float


@dataclass(frozen=True, slots=True)
class SkillUse:
    """One revision of a rule that went into one proposal's prompt."""

    skill: int
    revision: int
    run: int
    proposal: int
    created_at: float


class ProbeVerdict(StrEnum):
    """What running a rule's probes says about it."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    UNTESTABLE = "untestable"


@dataclass(frozen=True, slots=True)
class Verification:
    """The answer of one revision's probes on one toolchain; `detail` is a sentence."""

    skill: int
    name: str
    revision: int
    verdict: ProbeVerdict
    detail: str
    toolchain: str
