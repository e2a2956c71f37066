"""Verifies rules by their probes: the probe must fail as the rule says, the repaired form must not.

This module decides; a `ProbeRunner` compiles. Nothing here touches the memory: the caller records the
verifications, in a transaction of its own, after the slow part is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from skills.matching import matches
from skills.records import ProbeVerdict, Skill, SkillStatus, Verification

MAX_QUOTE = 300
"""The longest quotation of a compiler's message in a detail, in characters."""


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """How far one probe came: `stage` is load, compile, crash or timeout; `message` is empty if it is ok."""

    ok: bool
    stage: str
    message: str
    seconds: float = 0.0


class ProbeRunner(Protocol):
    """Compiles probes on one toolchain for one architecture."""

    def toolchain(self) -> str:
        """What the probes run on, such as `triton 3.7.1, sm_90`.

        Raises:
            ProbeUnavailable: if this machine cannot compile probes.
        """

    def compile(self, sources: Sequence[str]) -> Iterator[ProbeOutcome]:
        """Yield one outcome for each source, in order, as soon as it is known.

        Raises:
            ProbeUnavailable: if this machine cannot compile probes.
        """


@dataclass(frozen=True, slots=True)
class VerificationSummary:
    """The verifications of many rules."""

    toolchain: str
    verifications: tuple[Verification, ...]

    def count(self, verdict: ProbeVerdict) -> int:
        """How many rules got this verdict."""
        return sum(verification.verdict is verdict for verification in self.verifications)

    def as_json(self, statuses: dict[int, SkillStatus] | None = None) -> dict[str, Any]:
        """The document of `skills verify --json`.

        Args:
            statuses: by skill id, the status after the verifications were recorded; null where unknown.
        """
        known = statuses or {}
        return {
            "checked": len(self.verifications),
            "confirmed": self.count(ProbeVerdict.CONFIRMED),
            "retired": self.count(ProbeVerdict.REFUTED),
            "unverified": self.count(ProbeVerdict.UNTESTABLE),
            "toolchain": self.toolchain,
            "skills": [
                {
                    "id": one.skill,
                    "name": one.name,
                    "revision": one.revision,
                    "verdict": one.verdict,
                    "status": known.get(one.skill),
                    "detail": one.detail,
                }
                for one in self.verifications
            ],
        }


def verify(skill: Skill, runner: ProbeRunner) -> Verification:
    """Run one rule's probes.

    Raises:
        ProbeUnavailable: if this machine cannot compile probes; this says nothing about the rule.
    """
    return verify_all([skill], runner).verifications[0]


def verify_all(
    skills: Iterable[Skill],
    runner: ProbeRunner,
    progress: Callable[[int, int, Verification], None] | None = None,
) -> VerificationSummary:
    """Run the probes of many rules, with one start of the runner for all of them.

    Args:
        skills: which ones is the caller's choice, usually `SkillMemory.verifiable`.
        runner: compiles the probes.
        progress: called after each rule with how many are done, how many there are, and its answer.

    Raises:
        ProbeUnavailable: if this machine cannot compile probes; this says nothing about the rules.
    """
    chosen = list(skills)
    toolchain = runner.toolchain()
    testable = [skill for skill in chosen if _obstacle(skill) is None]
    outcomes = runner.compile([source for skill in testable for source in (skill.probe, skill.counter_probe)])
    answers: list[Verification] = []
    for skill in chosen:
        obstacle = _obstacle(skill)
        if obstacle is not None:
            verdict, detail = ProbeVerdict.UNTESTABLE, obstacle
        else:
            verdict, detail = _judge(skill, next(outcomes), next(outcomes))
        answer = Verification(skill.id, skill.name, skill.revision, verdict, detail, toolchain)
        answers.append(answer)
        if progress is not None:
            progress(len(answers), len(chosen), answer)
    return VerificationSummary(toolchain, tuple(answers))


def _obstacle(skill: Skill) -> str | None:
    """Why compiling cannot test the rule, or None."""
    if skill.stage != "compile":
        return f"It shows at the stage {skill.stage}, which compiling alone does not reach."
    if not skill.probe.strip():
        return "It has no probe."
    if not skill.counter_probe.strip():
        return "It has no counter-probe."
    return None


def _judge(skill: Skill, probe: ProbeOutcome, counter: ProbeOutcome) -> tuple[ProbeVerdict, str]:
    if not counter.ok:
        # Without a repaired form that compiles, what the probe does may have nothing to do with the rule.
        return ProbeVerdict.UNTESTABLE, f"Its counter-probe {_fate(counter)}"
    if probe.ok:
        return ProbeVerdict.REFUTED, "Its probe compiles, so what it forbids is allowed here."
    if probe.stage != "compile":
        return ProbeVerdict.UNTESTABLE, f"Its probe {_fate(probe)}"
    if skill.expect not in probe.message:
        return ProbeVerdict.UNTESTABLE, f"Its probe fails, but not with {skill.expect!r}: {_quote(probe.message)}"
    if skill.pattern and not matches(skill.probe, skill.pattern):
        return ProbeVerdict.UNTESTABLE, "Its pattern does not find the breach in its own probe."
    if skill.pattern and matches(skill.counter_probe, skill.pattern):
        return ProbeVerdict.UNTESTABLE, "Its pattern finds a breach in its own counter-probe, which compiles."
    return ProbeVerdict.CONFIRMED, f"Its probe fails with {skill.expect!r}; the repaired form compiles."


def _fate(outcome: ProbeOutcome) -> str:
    happened = {
        "load": "cannot be loaded",
        "compile": "does not compile",
        "crash": "crashes the compiler",
        "timeout": "takes too long",
    }
    return f"{happened.get(outcome.stage, outcome.stage)}: {_quote(outcome.message)}"


def _quote(message: str) -> str:
    """The end of a message, where Triton says what is wrong after quoting the source."""
    text = " ".join(message.split())
    return text if len(text) <= MAX_QUOTE else f"... {text[-MAX_QUOTE:]}"
