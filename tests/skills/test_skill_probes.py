from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from skills.errors import ProbeUnavailable
from skills.probes import ProbeOutcome, verify, verify_all
from skills.records import ProbeVerdict, Skill, SkillKind, SkillStatus, Verification

OK = ProbeOutcome(True, "compile", "")
FAILS = ProbeOutcome(False, "compile", "at line 3\nCompilationError: no such thing")

SKILL = Skill(
    id=1,
    name="a-rule",
    revision=3,
    kind=SkillKind.VALIDITY,
    statement="A rule.",
    scope="",
    stage="compile",
    pattern="",
    probe="bad",
    counter_probe="good",
    expect="no such thing",
    status=SkillStatus.ACTIVE,
    enabled=True,
    author="ann",
    reason="",
    changed_at=0.0,
)


class ToldRunner:
    """Answers what it has been told for each source, and fails on any other."""

    def __init__(self, answers: dict[str, ProbeOutcome]) -> None:
        self._answers = answers
        self.starts = 0

    def toolchain(self) -> str:
        return "triton 9, sm_1"

    def compile(self, sources: Sequence[str]) -> Iterator[ProbeOutcome]:
        self.starts += 1
        for source in sources:
            yield self._answers[source]


@pytest.mark.parametrize(
    ("probe", "counter", "verdict", "detail"),
    [
        (FAILS, OK, ProbeVerdict.CONFIRMED, "Its probe fails with 'no such thing'"),
        (OK, OK, ProbeVerdict.REFUTED, "Its probe compiles"),
        (FAILS, FAILS, ProbeVerdict.UNTESTABLE, "Its counter-probe does not compile: at line 3"),
        (OK, FAILS, ProbeVerdict.UNTESTABLE, "Its counter-probe does not compile"),
        (replace(FAILS, message="Another"), OK, ProbeVerdict.UNTESTABLE, "but not with 'no such thing': Another"),
        (replace(FAILS, stage="load"), OK, ProbeVerdict.UNTESTABLE, "Its probe cannot be loaded"),
        (replace(FAILS, stage="crash"), OK, ProbeVerdict.UNTESTABLE, "Its probe crashes the compiler"),
        (replace(FAILS, stage="timeout"), OK, ProbeVerdict.UNTESTABLE, "Its probe takes too long"),
    ],
)
def test_the_verdict_follows_from_probe_and_counter_probe(
    probe: ProbeOutcome, counter: ProbeOutcome, verdict: ProbeVerdict, detail: str
) -> None:
    answer = verify(SKILL, ToldRunner({"bad": probe, "good": counter}))
    assert answer.verdict is verdict
    assert detail in answer.detail
    assert "\n" not in answer.detail
    assert (answer.skill, answer.revision, answer.toolchain) == (1, 3, "triton 9, sm_1")


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"stage": "numerics"}, "It shows at the stage numerics"),
        ({"probe": " \n"}, "It has no probe."),
        ({"counter_probe": ""}, "It has no counter-probe."),
    ],
)
def test_a_rule_that_compiling_cannot_test_says_why_and_compiles_nothing(change: dict[str, str], detail: str) -> None:
    answer = verify(replace(SKILL, **change), ToldRunner({}))  # type: ignore[arg-type]
    assert answer.verdict is ProbeVerdict.UNTESTABLE
    assert detail in answer.detail


def test_a_pattern_must_find_the_probe_and_not_the_counter_probe() -> None:
    bad = "@triton.jit\ndef kernel(x):\n    tl.exp(x)\n"
    good = bad.replace("exp", "log")
    runner = ToldRunner({bad: FAILS, good: OK})
    skill = replace(SKILL, probe=bad, counter_probe=good)
    assert verify(replace(skill, pattern="tl.exp($X)"), runner).verdict is ProbeVerdict.CONFIRMED
    assert "does not find the breach" in verify(replace(skill, pattern="tl.sin($X)"), runner).detail
    assert "in its own counter-probe" in verify(replace(skill, pattern="tl.$F($X)"), runner).detail


def test_many_rules_take_one_start_and_report_progress_in_order() -> None:
    skills = [replace(SKILL, id=1), replace(SKILL, id=2, probe="works"), replace(SKILL, id=3, probe="")]
    runner = ToldRunner({"bad": FAILS, "works": OK, "good": OK})
    seen: list[tuple[int, int, int]] = []

    def progress(done: int, total: int, answer: Verification) -> None:
        seen.append((done, total, answer.skill))

    summary = verify_all(skills, runner, progress)
    assert runner.starts == 1
    assert seen == [(1, 3, 1), (2, 3, 2), (3, 3, 3)]
    document = summary.as_json({1: SkillStatus.ACTIVE, 2: SkillStatus.RETIRED})
    assert {name: document[name] for name in ("checked", "confirmed", "retired", "unverified")} == {
        "checked": 3,
        "confirmed": 1,
        "retired": 1,
        "unverified": 1,
    }
    assert [(one["id"], one["verdict"], one["status"]) for one in document["skills"]] == [
        (1, "confirmed", "active"),
        (2, "refuted", "retired"),
        (3, "untestable", None),
    ]


def test_a_machine_that_cannot_compile_says_nothing_about_rules() -> None:
    class Broken(ToldRunner):
        def compile(self, sources: Sequence[str]) -> Iterator[ProbeOutcome]:
            raise ProbeUnavailable("no Triton here")

    with pytest.raises(ProbeUnavailable):
        verify(SKILL, Broken({}))
