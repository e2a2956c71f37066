"""Reads and changes the skill memory for its screen; called in threads."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engine.store.control import Control, author
from engine.store.database import StoreError
from engine.store.reader import Reader
from skills.errors import SkillError, StaleRevision
from skills.memory import SkillMemory
from skills.records import Relation, Rule, Skill, SkillStatus
from tui.state.rules import RuleDetail


@dataclass(frozen=True, slots=True)
class Shelf:
    """All rules by name, with how many candidates say what about each; `problem` says why none were read."""

    skills: tuple[Skill, ...] = ()
    counts: Mapping[int, Mapping[Relation, int]] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Taught:
    """What became of a change: the rule as it is now, or the problem."""

    skill: Skill | None
    text: str
    stale: bool = False


def read_shelf(db: Path) -> Shelf:
    """Reads the list; rules that ship and are missing are added first."""
    try:
        with Reader(db) as reader:
            memory = reader.skills()
            found = memory.find()
            counts = memory.evidence_counts()
        if not found:
            with Control(db) as control, control.skills() as writable:
                found = writable.find()
    except (StoreError, SkillError, sqlite3.Error) as error:
        return Shelf(problem=str(error))
    order = {SkillStatus.RETIRED: 1}
    return Shelf(tuple(sorted(found, key=lambda skill: (order.get(skill.status, 0), skill.name))), counts)


def read_rule_detail(db: Path, skill: int) -> RuleDetail | None:
    """Reads one rule with all that is known about it; None if it cannot be read."""
    try:
        with Reader(db) as reader:
            memory = reader.skills()
            return RuleDetail(
                memory.get(skill),
                tuple(memory.history(skill)),
                tuple(memory.evidence(skill)),
                tuple(memory.verifications(skill)),
            )
    except (StoreError, SkillError, sqlite3.Error):
        return None


def _change(db: Path, change: str, action: Callable[[SkillMemory], Skill], before: int | None) -> Taught:
    """Changes a rule and tells of it in one transaction; `before` is the revision that it had."""
    try:
        with Control(db) as control, control.skills() as memory:
            skill = action(memory)
            if skill.revision == before:
                return Taught(skill, f"{skill.name} is unchanged")
            control.skill_changed(skill.id, skill.name, skill.revision, change)
    except StaleRevision as error:
        return Taught(None, str(error), stale=True)
    except (StoreError, SkillError, sqlite3.Error) as error:
        return Taught(None, str(error))
    return Taught(skill, f"{skill.name} {change}, revision {skill.revision}, {skill.status}")


def add_rule(db: Path, rule: Rule) -> Taught:
    """Adds a rule; it is unverified until its probes are run."""
    return _change(db, "added", lambda memory: memory.add(rule, author=author()), None)


def edit_rule(db: Path, skill: Skill, rule: Rule) -> Taught:
    """Changes what a rule says; refused if it is not at the revision any more that the edit started from."""
    started_from = rule.revision or skill.revision

    def action(memory: SkillMemory) -> Skill:
        return memory.edit(skill.id, started_from, author=author(), **rule.changes())

    return _change(db, "edited", action, started_from)


def switch_rule(db: Path, skill: Skill) -> Taught:
    """Switches a rule on or off."""
    wanted = not skill.enabled

    def action(memory: SkillMemory) -> Skill:
        return memory.set_enabled(skill.id, wanted, author())

    return _change(db, "switched on" if wanted else "switched off", action, skill.revision)


def retire_rule(db: Path, skill: Skill, reason: str) -> Taught:
    """Takes a rule out of use."""
    return _change(db, "retired", lambda memory: memory.retire(skill.id, reason, author()), skill.revision)


def reinstate_rule(db: Path, skill: Skill) -> Taught:
    """Takes a retirement back; the rule is unverified then."""

    def action(memory: SkillMemory) -> Skill:
        return memory.edit(skill.id, skill.revision, author=author(), status=SkillStatus.UNVERIFIED)

    return _change(db, "taken back from retirement", action, skill.revision)
