"""Which rules a prompt is given: those that concern what it is about, within a budget."""

from __future__ import annotations

from skills.records import Skill, SkillKind, SkillStatus
from skills.retrieval import Situation, relevant


def rule(
    name: str, statement: str, *, status: SkillStatus = SkillStatus.ACTIVE, enabled: bool = True, **more: str
) -> Skill:
    return Skill(
        1, name, 1, SkillKind.VALIDITY, statement, "", "compile", more.get("pattern", ""), "", "",
        more.get("expect", ""), status, enabled, "me", "", 0.0,
    )  # fmt: skip


ARANGE = rule("arange", "tl.arange takes powers of two.", expect="must be a power of 2")
DOT = rule("dot", "tl.dot needs tiles of 16 by 16.")
BREAK = rule("break", "No break in loops of kernels.", pattern='{"rule": {"kind": "break_statement"}}')
ALL = [ARANGE, BREAK, DOT]
KERNEL = "@triton.jit\ndef k(x):\n    tl.dot(x, x)\n"


def names(found: list[Skill]) -> list[str]:
    return [skill.name for skill in found]


def test_a_rule_that_just_failed_comes_first_and_one_that_concerns_nothing_is_left_out() -> None:
    situation = Situation([KERNEL], ["arange's range must be a power of 2"])
    assert names(relevant(ALL, situation, 1000)) == ["arange", "dot"]


def test_a_rule_that_the_faulty_kernel_breaks_is_found_by_its_pattern() -> None:
    broken = "def k():\n    for i in range(3):\n        break\n"
    assert names(relevant(ALL, Situation([broken], faulty=broken), 1000))[0] == "break"
    assert "break" not in names(relevant(ALL, Situation([broken]), 1000))


def test_rules_about_what_every_kernel_uses_are_given_where_there_is_no_kernel_yet() -> None:
    assert names(relevant(ALL, Situation(["torch.softmax(x)"]), 1000)) == ["arange"]


def test_only_active_rules_that_are_switched_on_are_given() -> None:
    for status, enabled in ((SkillStatus.UNVERIFIED, True), (SkillStatus.DISPUTED, True), (SkillStatus.ACTIVE, False)):
        assert relevant([rule("dot", "tl.dot", status=status, enabled=enabled)], Situation([KERNEL]), 1000) == []


def test_the_budget_is_kept_and_the_most_relevant_stays() -> None:
    situation = Situation([KERNEL], ["must be a power of 2"])
    assert names(relevant(ALL, situation, len(ARANGE.statement))) == ["arange"]
    assert relevant(ALL, situation, 5) == []
