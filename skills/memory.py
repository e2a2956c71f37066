"""The skill memory's store; with `skills.revisions` under it, the only SQL of this package.

It works on a connection that is handed in and never begins, commits or rolls back: the caller owns the
transaction and writes the event that tells of the change into the same one. A write outside a
transaction is a mistake of the caller and raises RuntimeError. Every change of a skill, a switch or a
new status included, is a new revision; what the skill was before stays in its history.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Unpack

from skills.checks import MAX_REASON, check_author, check_reason, check_rule
from skills.errors import SkillError, StaleRevision
from skills.records import (
    Evidence,
    ProbeVerdict,
    Relation,
    Rule,
    RuleChanges,
    Skill,
    SkillKind,
    SkillStatus,
    SkillUse,
    Verification,
)
from skills.revisions import CLAIM, SkillRevisions, differ

SHIPPED = "shipped"
"""The author of rules that come with the program."""

VERIFIER = "verify"
"""The author of status changes that follow from probes."""

OBSERVER = "evidence"
"""The author of status changes that follow from candidates."""

CONTRADICTIONS_TO_DISPUTE = 2
"""How many correct candidates must break a rule before it is disputed: one may be a loose pattern."""

MAX_DETAIL = 4_000

_TESTED = ("kind", "stage", "pattern", "probe", "counter_probe", "expect")


@dataclass(frozen=True, slots=True)
class SeedResult:
    """Names of the shipped rules that were added, brought up to date, or left as a person wrote them.

    `kept` holds those for which a newer or different shipped text exists.
    """

    added: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


class SkillMemory:
    """The skills of one database.

    Args:
        connection: with the tables of `skills.migrations` and any row factory.
        clock: the present time in Unix seconds.
    """

    def __init__(self, connection: sqlite3.Connection, clock: Callable[[], float] = time.time) -> None:
        self._revisions = SkillRevisions(connection, clock)

    def find(
        self,
        *,
        status: SkillStatus | None = None,
        enabled: bool | None = None,
        kind: SkillKind | None = None,
    ) -> list[Skill]:
        """The skills that meet every filter given, by name. Those to use are active and enabled."""
        filters = {"status": status, "enabled": enabled, "kind": kind}
        chosen = {name: value for name, value in filters.items() if value is not None}
        where = " AND ".join(f"{name} = :{name}" for name in chosen) or "1"
        return self._revisions.select(where, chosen)

    def get(self, skill: int | str) -> Skill:
        """The skill with this id or this name.

        Raises:
            UnknownSkill: if there is none.
        """
        return self._revisions.get(skill)

    def history(self, skill: int) -> list[Skill]:
        """Every revision of the skill, the oldest first and the current one last.

        Raises:
            UnknownSkill: if there is no such skill.
        """
        self.get(skill)
        return self._revisions.select_revisions("skill = ?", (skill,))

    def add(
        self,
        rule: Rule,
        *,
        author: str,
        reason: str = "",
        status: SkillStatus = SkillStatus.UNVERIFIED,
        enabled: bool = True,
    ) -> Skill:
        """Store a new skill as revision 1.

        Raises:
            SkillError: if the rule is not acceptable or its name is taken.
        """
        rule = check_rule(rule)
        skill = Skill(
            id=0,
            revision=1,
            status=status,
            enabled=enabled,
            author=check_author(author),
            reason=check_reason(reason),
            changed_at=self._revisions.now(),
            **rule.changes(),
        )
        return self._revisions.insert(skill)

    def edit(
        self,
        skill_id: int,
        expected_revision: int,
        *,
        author: str,
        reason: str = "",
        status: SkillStatus | None = None,
        **changes: Unpack[RuleChanges],
    ) -> Skill:
        """Change what a skill says; an edit that changes nothing makes no revision.

        A skill whose probes, pattern or kind change becomes unverified, unless it is retired. `status` is
        a person's own decision, such as using a rule that no probe confirms or taking back a retirement.

        Raises:
            StaleRevision: if the skill is not at `expected_revision` any more; nothing is changed then.
            SkillError: if the result is not acceptable or its name is taken.
            UnknownSkill: if there is no such skill.
        """
        current = self.get(skill_id)
        if current.revision != expected_revision:
            raise StaleRevision(current.name, expected_revision, current.revision, current.author)
        rule = check_rule(replace(current.rule(), **changes))
        changed = replace(current, **rule.changes())
        if status is not None:
            changed = replace(changed, status=status)
        elif current.status is not SkillStatus.RETIRED and differ(current, changed, _TESTED):
            changed = replace(changed, status=SkillStatus.UNVERIFIED)
        if changed == current:
            return current
        return self._revisions.save(current, changed, author=author, reason=reason)

    def set_enabled(self, skill_id: int, enabled: bool, author: str, reason: str = "") -> Skill:
        """Switch a skill on or off; one that is so already is returned as it is.

        Raises:
            UnknownSkill: if there is no such skill.
        """
        current = self.get(skill_id)
        if current.enabled == enabled:
            return current
        return self._revisions.save(current, replace(current, enabled=enabled), author=author, reason=reason)

    def retire(self, skill_id: int, reason: str, author: str) -> Skill:
        """Take a skill out of use for good, with the reason; one that is retired is returned as it is.

        Raises:
            SkillError: if the reason is empty.
            UnknownSkill: if there is no such skill.
        """
        if not reason.strip():
            raise SkillError("The reason is empty: say why the rule is retired.")
        current = self.get(skill_id)
        if current.status is SkillStatus.RETIRED:
            return current
        return self._revisions.save(current, replace(current, status=SkillStatus.RETIRED), author=author, reason=reason)

    def record_evidence(
        self, skill_id: int, run: int, candidate: int, relation: Relation, *, detail: str = "", toolchain: str = ""
    ) -> Skill:
        """Store what a candidate says about the current revision; the same thing twice is stored once.

        An active skill that enough correct candidates contradict becomes disputed. Those from before its claim
        or status last changed do not count: a person who believes it again has seen them.

        Raises:
            UnknownSkill: if there is no such skill.
        """
        current = self.get(skill_id)
        self._revisions.write(
            "INSERT OR IGNORE INTO skill_evidence"
            " (skill, revision, run, candidate, relation, detail, toolchain, created_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                current.id,
                current.revision,
                run,
                candidate,
                relation,
                detail[:MAX_DETAIL],
                toolchain,
                self._revisions.now(),
            ),
        )
        if relation is not Relation.CONTRADICTS or current.status is not SkillStatus.ACTIVE:
            return current
        against = self._revisions.rows(
            "SELECT DISTINCT run, candidate FROM skill_evidence AS said JOIN skills ON skills.id = said.skill"
            " WHERE skill = ? AND relation = ? AND said.revision >= MAX(content_revision, status_revision)"
            " ORDER BY run, candidate",
            (current.id, relation),
        )
        if len(against) < CONTRADICTIONS_TO_DISPUTE:
            return current
        named = " and ".join(f"candidate {number} of run {of_run}" for of_run, number in against)
        return self._revisions.save(
            current,
            replace(current, status=SkillStatus.DISPUTED),
            author=OBSERVER,
            reason=f"{named} break it and are correct",
        )

    def evidence(self, skill_id: int) -> list[Evidence]:
        """Everything that candidates said about the skill, the oldest first."""
        rows = self._revisions.rows(
            "SELECT skill, revision, run, candidate, relation, detail, toolchain, created_at"
            " FROM skill_evidence WHERE skill = ? ORDER BY id",
            (skill_id,),
        )
        return [
            Evidence(skill, revision, run, candidate, Relation(relation), detail, toolchain, created_at)
            for skill, revision, run, candidate, relation, detail, toolchain, created_at in rows
        ]

    def evidence_counts(self) -> dict[int, dict[Relation, int]]:
        """How many candidates say what about each skill, by skill id; one query for a whole list."""
        counts: dict[int, dict[Relation, int]] = {}
        rows = self._revisions.rows(
            "SELECT skill, relation, COUNT(DISTINCT run || ':' || candidate) FROM skill_evidence"
            " GROUP BY skill, relation",
            (),
        )
        for skill, relation, number in rows:
            counts.setdefault(skill, {})[Relation(relation)] = number
        return counts

    def record_verification(self, verification: Verification) -> Skill:
        """Store what the probes said, and let the status follow; return the skill as it is then.

        Confirmed: an unverified skill, or one that probes had retired, becomes active. Refuted: retired.
        Untestable although it has a probe: an active skill becomes unverified. If the claim has changed
        since the probes were run, the answer is kept and the status left alone.

        Raises:
            UnknownSkill: if there is no such skill.
        """
        current = self.get(verification.skill)
        self._revisions.write(
            "INSERT INTO skill_verifications (skill, revision, verdict, detail, toolchain, created_at)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (
                current.id,
                verification.revision,
                verification.verdict,
                verification.detail[:MAX_DETAIL],
                verification.toolchain,
                self._revisions.now(),
            ),
        )
        ((claimed_at, status_author),) = self._revisions.rows(
            "SELECT content_revision, status_author FROM skills WHERE id = ?", (current.id,)
        )
        if verification.revision < claimed_at:
            return current
        status = _status_after(current, status_author, verification.verdict)
        if status is current.status:
            return current
        # A reason names the toolchain and stays within its length.
        reason = f"{verification.detail} ({verification.toolchain})" if verification.toolchain else verification.detail
        return self._revisions.save(
            current, replace(current, status=status), author=VERIFIER, reason=reason[:MAX_REASON]
        )

    def verifications(self, skill_id: int) -> list[tuple[Verification, float]]:
        """Every answer of the skill's probes with its time in Unix seconds, the oldest first."""
        rows = self._revisions.rows(
            "SELECT skill, skills.name, answers.revision, verdict, detail, toolchain, created_at"
            " FROM skill_verifications AS answers JOIN skills ON skills.id = skill WHERE skill = ? ORDER BY answers.id",
            (skill_id,),
        )
        return [
            (Verification(skill, name, revision, ProbeVerdict(verdict), detail, toolchain), created_at)
            for skill, name, revision, verdict, detail, toolchain, created_at in rows
        ]

    def verifiable(self, unseen_by: str | None = None) -> list[Skill]:
        """The skills whose probes are worth running: all but those that a person retired.

        Args:
            unseen_by: a toolchain; only skills whose present claim it has not answered yet.
        """
        condition, values = "1", dict[str, Any](retired=SkillStatus.RETIRED, verifier=VERIFIER)
        if unseen_by is not None:
            condition = (
                "NOT EXISTS (SELECT 1 FROM skill_verifications AS seen WHERE seen.skill = skills.id"
                " AND seen.toolchain = :toolchain AND seen.revision >= skills.content_revision)"
            )
            values["toolchain"] = unseen_by
        return self._revisions.select(
            f"NOT (status = :retired AND status_author != :verifier) AND {condition}",
            values,
        )

    def record_uses(self, run: int, proposal: int, skills: Iterable[Skill]) -> None:
        """Note which revisions went into a proposal's prompt."""
        for skill in skills:
            self._revisions.write(
                "INSERT OR IGNORE INTO skill_uses (skill, revision, run, proposal, created_at) VALUES (?, ?, ?, ?, ?)",
                (skill.id, skill.revision, run, proposal, self._revisions.now()),
            )

    def uses(self, skill_id: int) -> list[SkillUse]:
        """Every proposal that one of the skill's revisions went into, the oldest first."""
        rows = self._revisions.rows(
            "SELECT skill, revision, run, proposal, created_at FROM skill_uses WHERE skill = ? ORDER BY id", (skill_id,)
        )
        return [SkillUse(*row) for row in rows]

    def used_in(self, run: int, proposal: int) -> list[Skill]:
        """The revisions that went into a proposal's prompt, as they were then, by name."""
        found = self._revisions.select_revisions(
            "(skill, revision) IN (SELECT skill, revision FROM skill_uses WHERE run = ? AND proposal = ?)",
            (run, proposal),
        )
        return sorted(found, key=lambda skill: skill.name)

    def seed(self, rules: Iterable[Rule]) -> SeedResult:
        """Add the shipped rules that are missing; writes nothing when all of them are there.

        A rule that still says what was shipped follows the newer shipped text, its switch untouched. One that
        a person edited, retired or wrote under the same name stays as it is and is reported.

        Raises:
            SkillError: if a shipped rule is not acceptable.
        """
        added, updated, kept = [], [], []
        for rule in map(check_rule, rules):
            digest = _digest(rule)
            rows = self._revisions.rows(
                "SELECT id, shipped_digest, status_author FROM skills"
                " WHERE shipped_as = ? OR name = ? ORDER BY shipped_as = ? DESC",
                (rule.name, rule.name, rule.name),
            )
            if not rows:
                self._revisions.insert(self._shipped(rule), shipped_digest=digest)
                added.append(rule.name)
                continue
            skill_id, known, status_author = rows[0]
            current = self.get(skill_id)
            if digest in (known, _digest(current.rule())):
                continue
            if known != _digest(current.rule()) or (
                current.status is SkillStatus.RETIRED and status_author != VERIFIER
            ):
                kept.append(rule.name)
                continue
            renamed = replace(rule, name=current.name)
            changed = replace(current, **renamed.changes(), status=SkillStatus.ACTIVE)
            self._revisions.save(current, changed, author=SHIPPED, reason="a newer version of the shipped rule")
            self._revisions.write("UPDATE skills SET shipped_digest = ? WHERE id = ?", (digest, skill_id))
            updated.append(rule.name)
        return SeedResult(tuple(added), tuple(updated), tuple(kept))

    def _shipped(self, rule: Rule) -> Skill:
        return Skill(
            id=0,
            revision=1,
            status=SkillStatus.ACTIVE,
            enabled=True,
            author=SHIPPED,
            reason="",
            changed_at=self._revisions.now(),
            **rule.changes(),
        )


def _digest(rule: Rule) -> str:
    claim = json.dumps([str(getattr(rule, name)) for name in CLAIM])
    return hashlib.sha256(claim.encode()).hexdigest()


def _status_after(skill: Skill, status_author: str, verdict: ProbeVerdict) -> SkillStatus:
    match verdict:
        case ProbeVerdict.REFUTED:
            return SkillStatus.RETIRED
        case ProbeVerdict.CONFIRMED if skill.status is SkillStatus.UNVERIFIED or (
            skill.status is SkillStatus.RETIRED and status_author == VERIFIER
        ):
            return SkillStatus.ACTIVE
        case ProbeVerdict.UNTESTABLE if skill.status is SkillStatus.ACTIVE and skill.probe and skill.stage == "compile":
            return SkillStatus.UNVERIFIED
    return skill.status
