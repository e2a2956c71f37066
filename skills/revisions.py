"""Rows of skills and of their revisions: the lower half of the skills' store, used by `skills.memory` only.

Every change of a skill is a new revision, written by compare-and-set; what it was before stays.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any

from skills.checks import check_author, check_reason
from skills.errors import SkillError, StaleRevision, UnknownSkill
from skills.records import Skill, SkillKind, SkillStatus

_FIELDS = tuple(field.name for field in fields(Skill))
_STORED = tuple(name for name in _FIELDS if name != "id")
_COLUMNS = ", ".join(_FIELDS)
CLAIM = ("kind", "statement", "scope", "stage", "pattern", "probe", "counter_probe", "expect")
"""The fields that say what a rule claims; the others say what is thought of it."""


class SkillRevisions:
    """The tables skills and skill_revisions of one database.

    Args:
        connection: with the tables of `skills.migrations` and any row factory.
        clock: the present time in Unix seconds.
    """

    def __init__(self, connection: sqlite3.Connection, clock: Callable[[], float]) -> None:
        self._connection = connection
        self._clock = clock

    def now(self) -> float:
        """The present time in Unix seconds."""
        return self._clock()

    def rows(self, sql: str, values: Any = ()) -> list[tuple[Any, ...]]:
        """What a query finds, as plain tuples whatever the connection's owner prefers."""
        cursor = self._connection.cursor()
        cursor.row_factory = None
        return cursor.execute(sql, values).fetchall()

    def write(self, sql: str, values: Any) -> sqlite3.Cursor:
        """Execute a statement that changes something.

        Raises:
            RuntimeError: if the caller began no transaction.
        """
        if not self._connection.in_transaction:
            raise RuntimeError("The skill memory writes only inside a transaction of its caller: begin one first.")
        return self._connection.execute(sql, values)

    def select(self, where: str, values: Any = ()) -> list[Skill]:
        """The current revisions that meet a condition, by name."""
        return [_skill(row) for row in self.rows(f"SELECT {_COLUMNS} FROM skills WHERE {where} ORDER BY name", values)]

    def get(self, skill: int | str) -> Skill:
        """The skill with this id or this name.

        Raises:
            UnknownSkill: if there is none.
        """
        for found in self.select("id = ?" if isinstance(skill, int) else "name = ?", (skill,)):
            return found
        raise UnknownSkill(f"There is no rule {skill}: `kernelgrove skills list` shows those that exist.")

    def select_revisions(self, where: str, values: Any = ()) -> list[Skill]:
        """The revisions, current ones included, that meet a condition; by skill, the oldest first."""
        columns = ", ".join(("skill", *_STORED))
        rows = self.rows(f"SELECT {columns} FROM skill_revisions WHERE {where} ORDER BY skill, revision", values)
        return [_skill(row) for row in rows]

    def insert(self, skill: Skill, *, shipped_digest: str | None = None) -> Skill:
        """Store a new skill and return it with its id.

        Raises:
            SkillError: if the name is taken.
        """
        values = {name: getattr(skill, name) for name in _STORED}
        values |= {
            "content_revision": skill.revision,
            "status_revision": skill.revision,
            "status_author": skill.author,
            "shipped_as": skill.name if shipped_digest else None,
            "shipped_digest": shipped_digest,
        }
        places = ", ".join(f":{name}" for name in values)
        try:
            cursor = self.write(f"INSERT INTO skills ({', '.join(values)}) VALUES ({places})", values)
        except sqlite3.IntegrityError as error:
            raise _taken(skill.name) from error
        stored = replace(skill, id=int(cursor.lastrowid or 0))
        self._keep(stored)
        return stored

    def save(self, current: Skill, changed: Skill, *, author: str, reason: str) -> Skill:
        """Write the next revision if the skill still is at the revision that was read.

        The revision is compared again in the update itself, so that a caller whose transaction began with
        a read loses nothing to a writer in between.

        Raises:
            StaleRevision: if it is not.
            SkillError: if the name is taken, or author or reason are not acceptable.
        """
        changed = replace(
            changed,
            revision=current.revision + 1,
            author=check_author(author),
            reason=check_reason(reason),
            changed_at=self._clock(),
        )
        assignments = ", ".join(f"{name} = :{name}" for name in _STORED)
        if differ(current, changed, CLAIM):
            assignments += ", content_revision = :revision"
        if changed.status is not current.status:
            assignments += ", status_revision = :revision, status_author = :author"
        values = {name: getattr(changed, name) for name in _FIELDS}
        try:
            cursor = self.write(f"UPDATE skills SET {assignments} WHERE id = :id AND revision = :revision - 1", values)
        except sqlite3.IntegrityError as error:
            raise _taken(changed.name) from error
        if cursor.rowcount != 1:
            newest = self.get(current.id)
            raise StaleRevision(newest.name, current.revision, newest.revision, newest.author)
        self._keep(changed)
        return changed

    def _keep(self, skill: Skill) -> None:
        columns = ", ".join(("skill", *_STORED))
        self.write(f"INSERT INTO skill_revisions ({columns}) SELECT {_COLUMNS} FROM skills WHERE id = ?", (skill.id,))


def differ(one: Skill, other: Skill, names: Iterable[str]) -> bool:
    """Whether one of the named fields differs."""
    return any(getattr(one, name) != getattr(other, name) for name in names)


def _skill(row: tuple[Any, ...]) -> Skill:
    values = dict(zip(_FIELDS, row, strict=True))
    values["kind"] = SkillKind(values["kind"])
    values["status"] = SkillStatus(values["status"])
    values["enabled"] = bool(values["enabled"])
    return Skill(**values)


def _taken(name: str) -> SkillError:
    return SkillError(f"There is a rule named {name} already: choose another name or edit that one.")
