"""An evaluation as the `eval --json` document, and as one line for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from engine.records import Audit, CaseResult, Evaluation, Measurement
from engine.result_line import result_line

SPEEDUP_KEYS = ("eager", "compile", "compile_max", "eager_strict")


def evaluation_json(evaluation: Evaluation, task_name: str, audit: Audit | None = None) -> dict[str, Any]:
    """The document that `kernelgrove eval --json` prints; what is not known is None.

    Args:
        evaluation: what the judge found.
        task_name: the task that was judged.
        audit: what the audit says of the task, where there was one.
    """
    numerics = asdict(evaluation.numerics) if evaluation.numerics is not None else None
    speedup: dict[str, float | None] = dict.fromkeys(SPEEDUP_KEYS)
    return {
        "verdict": str(evaluation.verdict),
        "labels": list(evaluation.labels),
        "reason": evaluation.reason or None,
        "stage": evaluation.stage,
        "numerics": numerics,
        "checks": [asdict(check) for check in evaluation.checks],
        "cases": [_case_json(case) for case in evaluation.cases],
        "time_us": evaluation.time_us,
        "speedup": speedup | dict(evaluation.speedup),
        "speedup_ci95": {name: list(ends) for name, ends in evaluation.speedup_ci95.items()},
        "standing": dict(evaluation.standing),
        "bound_fraction": evaluation.bound_fraction,
        "static": [asdict(kernel) for kernel in evaluation.static],
        "task": {
            "name": task_name,
            "audit": str(audit.verdict) if audit is not None else None,
            "findings": list(audit.findings) if audit is not None else [],
        },
        "device": evaluation.device,
        "toolchain": dict(evaluation.toolchain),
        "seconds": round(evaluation.seconds, 3),
        "stage_seconds": dict(evaluation.stage_seconds),
    }


def _case_json(case: CaseResult) -> dict[str, Any]:
    baselines: Mapping[str, float | None] = {"eager": None, "compile": None, "compile_max": None}
    return {
        "name": case.name,
        "weight": case.weight,
        "verdict": str(case.verdict),
        "measurement": _measurement_json(case.measurement),
        "baselines": {**baselines, **case.baselines},
        "bound_us": case.bound_us,
        "bound_by": case.bound_by or None,
        "peak_bytes": case.peak_bytes,
    }


def _measurement_json(measurement: Measurement | None) -> dict[str, Any] | None:
    if measurement is None:
        return None
    return {
        "kind": str(measurement.kind),
        "time_us": measurement.time_us,
        "ci95_us": list(measurement.ci95_us),
        "mode": measurement.mode,
        "cache": measurement.cache,
        "detail": dict(measurement.detail),
    }


def summary(evaluation: Evaluation) -> str:
    """One readable line: verdict, time and speedups, or the reason why there are none."""
    words = [str(evaluation.verdict)]
    if evaluation.labels:
        words[0] += f" ({', '.join(evaluation.labels)})"
    if evaluation.time_us is not None:
        kind = next((str(c.measurement.kind) for c in evaluation.cases if c.measurement is not None), "")
        words.append(f"{evaluation.time_us:.4g} us {kind}".rstrip())
        words.extend(filter(None, [result_line(evaluation)]))
    if evaluation.reason:
        words.append(f"in {evaluation.stage}: {evaluation.reason}" if not evaluation.correct else evaluation.reason)
    return ", ".join(words[:1]) + (": " if len(words) > 1 else "") + ", ".join(words[1:])
