"""The five rules that ship hold on the installed Triton, each by its own probe."""

from __future__ import annotations

import sqlite3

import pytest
from sqlite_utils import Database

from skills.matching import matches
from skills.memory import SkillMemory
from skills.migrations import MIGRATIONS
from skills.probe_process import SubprocessProbeRunner
from skills.probes import VerificationSummary, verify_all
from skills.records import ProbeVerdict, Rule, Skill, SkillStatus
from skills.rule_files import shipped_rules

RULES = {rule.name: rule for rule in shipped_rules()}


def skill(rule: Rule, number: int = 1) -> Skill:
    return Skill(
        id=number,
        revision=1,
        status=SkillStatus.ACTIVE,
        enabled=True,
        author="shipped",
        reason="",
        changed_at=0.0,
        **rule.changes(),
    )


@pytest.fixture(scope="module")
def summary() -> VerificationSummary:
    pytest.importorskip("triton")
    skills = [skill(rule, number) for number, rule in enumerate(RULES.values(), 1)]
    return verify_all(skills, SubprocessProbeRunner(arch="sm_90"))


def test_five_rules_ship() -> None:
    assert len(RULES) == 5


@pytest.mark.parametrize("name", RULES)
def test_the_probe_fails_as_the_rule_says_and_the_repaired_form_compiles(
    name: str, summary: VerificationSummary
) -> None:
    (answer,) = (one for one in summary.verifications if one.name == name)
    assert answer.verdict is ProbeVerdict.CONFIRMED, answer.detail


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.pattern])
def test_the_pattern_finds_the_probe_and_no_other_rules_repaired_form(name: str) -> None:
    assert matches(RULES[name].probe, RULES[name].pattern)
    assert [other.name for other in RULES.values() if matches(other.counter_probe, RULES[name].pattern)] == []


def test_the_shipped_rules_survive_verification_in_the_memory(summary: VerificationSummary) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    MIGRATIONS.apply(Database(connection))
    connection.execute("BEGIN")
    memory = SkillMemory(connection)
    memory.seed(RULES.values())
    for answer in summary.verifications:
        recorded = memory.record_verification(answer)
        assert (recorded.status, recorded.revision) == (SkillStatus.ACTIVE, 1)
    assert memory.verifiable(unseen_by=summary.toolchain) == []
