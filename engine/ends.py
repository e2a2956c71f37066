"""What ends a search, and when it will: pure functions of how a run stands."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.settings import RunSettings


@dataclass(frozen=True, slots=True)
class Standing:
    """How a run stands. Times in seconds; `now` is Unix time.

    `used` counts the candidates that use budget, `judged` those of them that have been judged, `since_best` those
    judged since the last new best. `bound` is the best one's share of the speed of light.
    """

    budget: int
    used: int
    judged: int
    since_best: int
    active_seconds: float
    now: float
    speedup: float | None = None
    bound: float | None = None


@dataclass(frozen=True, slots=True)
class End:
    """Why a search ends: a word for programs and a sentence for people."""

    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Forecast:
    """When a search will end as it goes now: seconds from now, and by what."""

    seconds: float
    by: str


def end_of(settings: RunSettings, standing: Standing) -> End | None:
    """The end that a run has come to, None while it may go on."""
    if settings.target is not None and _meets(settings.target, standing):
        return End("target", f"the target of {settings.target} is met")
    if settings.max_time is not None and standing.active_seconds >= settings.max_time:
        return End("time", f"the time of {settings.max_time:.0f} s is used up")
    if settings.until is not None and standing.now >= settings.until:
        return End("time", f"it is {time.strftime('%H:%M', time.localtime(settings.until))}, when it was to end")
    if settings.patience is not None and standing.since_best >= settings.patience:
        return End("patience", f"no new best in the last {standing.since_best} candidates")
    if standing.used >= standing.budget:
        return End("budget", f"the budget of {standing.budget} candidates is used up")
    return None


def _meets(target: str, standing: Standing) -> bool:
    if target.startswith("bound:"):
        return standing.bound is not None and standing.bound >= float(target.removeprefix("bound:"))
    return standing.speedup is not None and standing.speedup >= float(target.removesuffix("x"))


def forecast(settings: RunSettings, standing: Standing) -> Forecast | None:
    """When the run will end by budget or time at its present pace; None before its first verdict.

    A target met or patience lost may end it sooner.
    """
    ends = []
    if standing.judged and standing.active_seconds > 0:
        pace = standing.active_seconds / standing.judged
        ends.append(Forecast(pace * max(standing.budget - standing.judged, 0), "budget"))
    if settings.max_time is not None:
        ends.append(Forecast(max(settings.max_time - standing.active_seconds, 0.0), "time"))
    if settings.until is not None:
        ends.append(Forecast(max(settings.until - standing.now, 0.0), "time"))
    return min(ends, key=lambda end: end.seconds, default=None)


def bound_share(speedup: float | None, facts: Mapping[str, Any]) -> float | None:
    """The share of the speed of light that a speedup against eager is, by the judge's facts of the task."""
    baselines = facts.get("baselines", {})
    eager, bound = baselines.get("eager"), baselines.get("bound")
    return speedup * bound / eager if speedup and eager and bound else None
