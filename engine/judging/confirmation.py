"""A candidate that may be best is timed again in fresh processes; what they find together is what counts.

The session that made it look best is left out of its time, having been picked for being fast. Pure
functions on the judge's messages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.judging.ratios import Ratio, of_interval, over_sessions
from engine.judging.wire import Message
from engine.records import Evaluation, Label

SESSIONS = 3
"""How many fresh processes there are, unless the first ones show that the candidate is not best."""

NEAR = 1.02
"""Up to how many times the best candidate's time another one may still be best."""

_AGREE = 1.05
"""By which factor sessions may differ, where their own intervals are not wider."""


@dataclass(frozen=True, slots=True)
class Bar:
    """What a candidate must clear to become best.

    Attributes:
        time_us: the best candidate's time; None where there is none yet.
        cases: the same by case.
        allow: labels that do not bar a candidate.
    """

    time_us: float | None = None
    cases: Mapping[str, float] = field(default_factory=dict)
    allow: frozenset[str] = frozenset()

    def cleared_by(self, evaluation: Evaluation) -> bool:
        """Whether the candidate may be best, as far as this evaluation tells."""
        if not evaluation.eligible(self.allow) or evaluation.time_us is None:
            return False
        return self.time_us is None or evaluation.time_us < NEAR * self.time_us


def request(found: Message) -> list[Message]:
    """What a fresh process is told by case of the session that made it necessary."""
    return [
        {"tier": case["numerics"]["tier"], "tuned": case["measurement"]["detail"]["tuned"]} for case in found["cases"]
    ]


def merged(found: Message, sessions: Sequence[Message]) -> Message:
    """The judge's message about a candidate with the measurements of fresh processes in place of its own.

    Where the processes disagree it gets the label `unstable`, and says so.
    """
    cases, reasons = [], []
    for index, case in enumerate(found["cases"]):
        first = case["measurement"]
        again = [session["cases"][index]["measurement"] for session in sessions]
        reason = _disagreement([first, *again])
        reasons += [reason] if reason else []
        labels = {*case["labels"], *(label for session in sessions for label in session["cases"][index]["labels"])}
        labels |= {Label.UNSTABLE} if reason else set()
        cases.append({**case, "labels": sorted(labels), "measurement": _together(first, again)})
    return {**found, "reason": found["reason"] or "; ".join(reasons), "cases": cases}


def _together(first: Mapping[str, Any], sessions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    time = over_sessions([of_interval(s["time_us"], *s["ci95_us"]) for s in sessions])
    names = [name for name in first["detail"]["speedups"] if all(name in s["detail"]["speedups"] for s in sessions)]
    speedups = {name: over_sessions([_speedup(session, name) for session in sessions]) for name in names}
    details = [session["detail"] for session in sessions]
    return {
        "time_us": time.value,
        "ci95_us": [time.low, time.high],
        "baselines": {name: time.value * ratio.value for name, ratio in speedups.items() if name != "eager_strict"},
        "peak_bytes": max(session["peak_bytes"] for session in sessions),
        "detail": {
            "rounds": sum(detail["rounds"] for detail in details),
            "speedups": {name: ratio.to_json() for name, ratio in speedups.items()},
            "band": max(detail["band"] for detail in details),
            "tier": first["detail"]["tier"],
            "tuned": first["detail"]["tuned"],
            "baseline_peak_bytes": details[-1]["baseline_peak_bytes"],
            "notes": sorted({note for detail in details for note in detail["notes"]}),
            "others": [other for detail in details for other in detail.get("others", ())],
            "sessions": [_briefly(session) for session in sessions],
            "first": _briefly(first),
        },
    }


def _briefly(session: Mapping[str, Any]) -> dict[str, Any]:
    """A session as it is stored beside what all of them found together."""
    kept = ("rounds", "repeated", "iterations", "medians_us", "reference_medians_us", "wall_us", "blocks")
    return {
        "time_us": session["time_us"],
        "speedup": _speedup(session, "eager").to_json(),
        **{name: session["detail"][name] for name in kept},
    }


def _disagreement(sessions: Sequence[Mapping[str, Any]]) -> str:
    """How processes differ by more than they may; empty where they agree.

    Each is compared by its speedup, which does not notice when the device as a whole is slower for a while.
    """
    speedups = sorted((_speedup(session, "eager") for session in sessions), key=lambda ratio: ratio.value)
    least, most = speedups[0], speedups[-1]
    apart = most.value / least.value
    if apart <= max(_AGREE, math.exp(least.half + most.half)):
        return ""
    return (
        f"timed in {len(sessions)} processes it is {least.value:.3g}x to {most.value:.3g}x as fast as eager, "
        f"{apart - 1:.0%} apart"
    )


def _speedup(session: Mapping[str, Any], name: str) -> Ratio:
    return Ratio.from_json(session["detail"]["speedups"][name])
