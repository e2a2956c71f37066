"""Puts together what judge, nursery and compiler say of one candidate into one evaluation."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.judging.facts import CaseFacts, TaskFacts
from engine.judging.modelling import Modelled
from engine.judging.ratios import Ratio, standing, weighted
from engine.judging.second_opinion import LIGHT
from engine.judging.settings import JudgeSettings
from engine.judging.wire import Message
from engine.records import (
    CaseResult,
    Check,
    Evaluation,
    KernelResources,
    Label,
    Measurement,
    MeasurementKind,
    Numerics,
    Verdict,
)
from engine.result_line import baseline_words

_STAGE_WORDS = {
    "load": "while it was loaded",
    "compile": "in its first call",
    "correct": "while its answers were checked",
    "honest": "while its answers were questioned",
    "time": "while it was timed",
    "after": "while its timed answers were checked",
}
_LIGHT = 0.5
"""The share of the bound below which a time is not believed; what is written may stay in the cache unpaid."""

_TIERS = ("exact", "reduced", "bf16", "none")


@dataclass(frozen=True, slots=True)
class Given:
    """A verdict with its one-line reason, the stage it fell in, and whatever else explains it."""

    verdict: Verdict
    reason: str
    stage: str
    detail: str = ""


def ended_by_itself(code: int, stage: str) -> Given:
    """The verdict on a contestant that ended although nobody killed it.

    Args:
        code: its exit code, negative for a signal.
        stage: what it was doing.
    """
    when = _STAGE_WORDS.get(stage, f"in stage {stage}")
    if code < 0:
        if -code == signal.SIGKILL:
            reason = f"the system killed the candidate {when}, most likely for lack of memory"
            return Given(Verdict.OUT_OF_MEMORY, reason, stage)
        name = signal.Signals(-code).name
        words = {"SIGSEGV": "a segmentation fault", "SIGBUS": "a bus error", "SIGABRT": "an abort"}.get(name, name)
        return Given(Verdict.RUNTIME_ERROR, f"the candidate crashed with {words} {when}", stage)
    return Given(Verdict.RUNTIME_ERROR, f"the candidate ended its process with exit code {code} {when}", stage)


def timed_out(timeout_s: float, stage: str) -> Given:
    """The verdict on a contestant that was killed at its deadline."""
    when = _STAGE_WORDS.get(stage, f"in stage {stage}")
    return Given(Verdict.TIMEOUT, f"the candidate did not finish within {timeout_s:g} s {when}", stage)


def infrastructure(reason: str, seconds: float) -> Evaluation:
    """The evaluation of a candidate that the machine, not the candidate, failed."""
    return Evaluation(Verdict.INFRASTRUCTURE_ERROR, "load", reason, seconds=seconds)


def evaluation(
    found: Message,
    given: Given,
    modelled: Mapping[int, Modelled],
    facts: TaskFacts,
    settings: JudgeSettings,
    log: str,
    seconds: float,
) -> Evaluation:
    """Everything about one candidate as one record.

    Args:
        found: the judge's last message.
        given: the verdict so far, before anything was compiled ahead of time.
        modelled: by case, what compiling and modelling gave, where there is no GPU.
        facts: the task as the judge found it.
        settings: the run's settings.
        log: what the candidate printed.
        seconds: how long it all took.
    """
    labels = {label for case in found["cases"] for label in case["labels"]}
    numerics = _worst([case["numerics"] for case in found["cases"] if case["numerics"] is not None])
    given, numerics = _judged_by_code(given, numerics, modelled, settings, labels)
    cases = tuple(
        _case_result(case, _finding(found["cases"], index), modelled.get(index), given, numerics, settings)
        for index, case in enumerate(facts.cases)
    )
    fast = [case for case in cases if _faster_than_light(case)]
    if fast:
        labels.add(Label.REVIEW)
    regression = _regression(cases, facts.own or ("eager",), settings.no_regress)
    if regression:
        labels.add(Label.REGRESSION)
    time_us, speedup, band = _overall(cases, facts.cases)
    problem = next((outcome.problem for outcome in modelled.values() if outcome.problem), "")
    return Evaluation(
        verdict=given.verdict,
        stage=given.stage,
        reason=given.reason or problem or regression,
        labels=tuple(sorted(labels)),
        numerics=numerics,
        checks=(
            *(Check(c["name"], c["passed"], c["detail"]) for case in found["cases"] for c in case["checks"]),
            *(Check(LIGHT, False, f"case {case.name} takes less than {_LIGHT:g} of its bound") for case in fast),
        ),
        cases=cases,
        time_us=time_us,
        speedup={name: ratio.value for name, ratio in speedup.items()},
        speedup_ci95={name: (ratio.low, ratio.high) for name, ratio in speedup.items() if ratio.half},
        standing={name: standing(ratio, band) for name, ratio in speedup.items()},
        bound_fraction=_bound_fraction(cases),
        static=_static(found["cases"], modelled),
        fingerprint=_fingerprint([modelled[case] for case in sorted(modelled)]) if modelled else found["fingerprint"],
        device=facts.device,
        toolchain=facts.toolchain,
        log="\n".join(part for part in (log, given.detail) if part),
        seconds=seconds,
    )


def _worst(found: Sequence[Mapping[str, Any]]) -> Numerics | None:
    """The numerics of the worst case in every respect."""
    if not found:
        return None
    return Numerics(
        tier=max((case["tier"] for case in found), key=_TIERS.index),
        relative_error=max(case["relative_error"] for case in found),
        max_error=max(case["max_error"] for case in found),
        reference_noise=max(case["reference_noise"] for case in found),
        official_gate=all(case["official_gate"] for case in found),
        paper_gate=all(case["paper_gate"] for case in found),
    )


def _judged_by_code(
    given: Given,
    numerics: Numerics | None,
    modelled: Mapping[int, Modelled],
    settings: JudgeSettings,
    labels: set[str],
) -> tuple[Given, Numerics | None]:
    """Applies what only the compiled code can tell: that it does not compile, or multiplies in TF32."""
    fault = next((outcome.fault for outcome in modelled.values() if outcome.fault is not None), None)
    if fault is not None:
        return Given(fault.verdict, fault.reason, "compile", fault.detail), numerics
    if numerics is not None and numerics.tier == "exact" and any(outcome.tf32 for outcome in modelled.values()):
        numerics = replace(numerics, tier="reduced")
        labels.add(Label.REDUCED_PRECISION)
        if "reduced" not in settings.accepted_tiers:
            reason = (
                f"tl.dot multiplies float32 in TF32, which --numerics {settings.numerics} does not accept: "
                "pass input_precision='ieee'"
            )
            return Given(Verdict.INCORRECT, reason, "compile"), numerics
    return given, numerics


def _regression(cases: Sequence[CaseResult], against: Sequence[str], percent: float | None) -> str:
    """Why the candidate may not become best: the case on which it is slower than a baseline by too much; or empty."""
    if percent is None:
        return ""
    for case in cases:
        for name in against:
            ratio = _ratios(case).get(name)
            if ratio is not None and 1.0 / ratio.value > 1.0 + percent / 100.0:
                slower = (1.0 / ratio.value - 1.0) * 100.0
                return (
                    f"case {case.name} is {slower:.3g}% slower than {baseline_words(name)}, "
                    f"and --no-regress allows {percent:g}%"
                )
    return ""


def _faster_than_light(case: CaseResult) -> bool:
    """Whether a measured time is below what the task can take, and a person must look."""
    if case.measurement is None or case.bound_us is None or case.measurement.cache != "cold":
        return False
    return case.measurement.time_us < _LIGHT * case.bound_us


def _finding(found: Sequence[Mapping[str, Any]], index: int) -> Mapping[str, Any] | None:
    return found[index] if index < len(found) else None


def _case_result(
    case: CaseFacts,
    finding: Mapping[str, Any] | None,
    modelled: Modelled | None,
    given: Given,
    numerics: Numerics | None,
    settings: JudgeSettings,
) -> CaseResult:
    tier = numerics.tier if numerics is not None else "exact"
    measurement = None
    baselines = dict(case.tiers.get(tier, case.baselines))
    if given.verdict is Verdict.CORRECT:
        if modelled is not None and modelled.time_us is not None:
            time_us = modelled.time_us
            detail = {"parts": [dict(part) for part in modelled.parts]}
            # The model knows no other mode.
            measurement = Measurement(MeasurementKind.MODELLED, time_us, (time_us, time_us), "launch", "cold", detail)
        elif finding is not None and finding["measurement"] is not None:
            measured = finding["measurement"]
            measurement = Measurement(
                MeasurementKind.MEASURED,
                measured["time_us"],
                (measured["ci95_us"][0], measured["ci95_us"][1]),
                settings.time_mode,
                settings.cache,
                measured["detail"],
            )
            baselines |= measured["baselines"]
    peak = finding["measurement"]["peak_bytes"] if finding is not None and finding["measurement"] else None
    bound_us = case.bounds.get(tier, case.bound_us)
    by = case.bound_by.get(tier, "")
    return CaseResult(case.name, case.weight, given.verdict, measurement, baselines, bound_us, peak, by)


def _overall(cases: Sequence[CaseResult], facts: Sequence[CaseFacts]) -> tuple[float | None, dict[str, Ratio], float]:
    """Weighted geometric means over cases of the time and of each speedup, and the widest band of a case.

    No time where a case has none.
    """
    timed = [(case, case.measurement) for case in cases if case.measurement is not None]
    if len(timed) != len(cases) or not timed:
        return None, {}, 0.0
    ratios: dict[str, list[tuple[float, Ratio]]] = {}
    for (case, measurement), fact in zip(timed, facts, strict=True):
        found = _ratios(case)
        if "eager" in fact.tiers.get("exact", {}):
            found.setdefault("eager_strict", Ratio(fact.tiers["exact"]["eager"] / measurement.time_us))
        for name, ratio in found.items():
            ratios.setdefault(name, []).append((case.weight, ratio))
    speedup = {name: weighted(pairs) for name, pairs in ratios.items() if len(pairs) == len(cases)}
    time_us = weighted([(case.weight, Ratio(measurement.time_us)) for case, measurement in timed]).value
    return time_us, speedup, max(float(measurement.detail.get("band", 0.0)) for _, measurement in timed)


def _ratios(case: CaseResult) -> dict[str, Ratio]:
    """Each baseline's time over the candidate's: as it was measured side by side, or from modelled times."""
    if case.measurement is None:
        return {}
    measured = case.measurement.detail.get("speedups")
    if measured is not None:
        return {name: Ratio.from_json(fields) for name, fields in measured.items()}
    return {name: Ratio(time_us / case.measurement.time_us) for name, time_us in case.baselines.items()}


def _bound_fraction(cases: Sequence[CaseResult]) -> float | None:
    """How near to the speed of light the candidate is, one being there."""
    pairs = [
        (case.weight, case.bound_us / case.measurement.time_us)
        for case in cases
        if case.measurement is not None and case.bound_us is not None
    ]
    if not pairs or len(pairs) < len(cases):
        return None
    return weighted([(weight, Ratio(share)) for weight, share in pairs]).value


def _fingerprint(modelled: Sequence[Modelled]) -> str | None:
    """What two candidates share if they compile to the same code and launches in every case."""
    known = [str(outcome.fingerprint) for outcome in modelled if outcome.fingerprint]
    return "+".join(known) if known and len(known) == len(modelled) else None


def _static(found: Sequence[Mapping[str, Any]], modelled: Mapping[int, Modelled]) -> tuple[KernelResources, ...]:
    """Resources of every kernel, from the ahead-of-time compiler or from the code that ran."""
    if modelled:
        return tuple(dict.fromkeys(kernel for outcome in modelled.values() for kernel in outcome.kernels))
    compiled = [kernel for case in found for kernel in case["kernels"] if "registers" in kernel]
    return tuple(
        dict.fromkeys(
            KernelResources(k["kernel"], k["arch"], k["registers"], k["spills"], k["shared_bytes"]) for k in compiled
        )
    )
