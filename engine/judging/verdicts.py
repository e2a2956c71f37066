"""Puts together what judge, nursery and compiler say of one candidate into one evaluation."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from engine.records import Check, Evaluation, Numerics, Verdict

_STAGE_WORDS = {
    "load": "while it was loaded",
    "compile": "in its first call",
    "correct": "while its answers were checked",
    "time": "while it was timed",
    "after": "while its timed answers were checked",
}


def ended_by_itself(code: int | None, stage: str) -> tuple[Verdict, str]:
    """Verdict and reason for a contestant that ended although nobody killed it.

    Args:
        code: its exit code, negative for a signal; None where the nursery did not say.
        stage: what it was doing.
    """
    when = _STAGE_WORDS.get(stage, f"in stage {stage}")
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        if -code == signal.SIGKILL:
            return Verdict.OUT_OF_MEMORY, f"the system killed the candidate {when}, most likely for lack of memory"
        words = {"SIGSEGV": "a segmentation fault", "SIGBUS": "a bus error", "SIGABRT": "an abort"}.get(name, name)
        return Verdict.RUNTIME_ERROR, f"the candidate crashed with {words} {when}"
    return Verdict.RUNTIME_ERROR, f"the candidate ended its process with exit code {code} {when}"


def timed_out(timeout_s: float, stage: str) -> tuple[Verdict, str]:
    """Verdict and reason for a contestant that was killed at its deadline."""
    when = _STAGE_WORDS.get(stage, f"in stage {stage}")
    return Verdict.TIMEOUT, f"the candidate did not finish within {timeout_s:g} s {when}"


def numerics(found: Mapping[str, Any] | None) -> Numerics | None:
    """The judge's errors as a record."""
    return Numerics(**found) if found else None


def checks(found: list[dict[str, Any]]) -> tuple[Check, ...]:
    """The judge's checks as records."""
    return tuple(Check(check["name"], check["passed"], check["detail"]) for check in found)


def infrastructure(reason: str, seconds: float) -> Evaluation:
    """The evaluation of a candidate that the machine, not the candidate, failed."""
    return Evaluation(Verdict.INFRASTRUCTURE_ERROR, "load", reason, seconds=seconds)
