"""When a search ends, and when it will: pure functions of how it stands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.ends import Forecast, Standing, bound_share, end_of, forecast
from engine.settings import RunSettings

STANDING = Standing(budget=50, used=20, judged=20, since_best=4, active_seconds=600.0, now=1e9, speedup=1.8, bound=0.7)


def settings(**more: object) -> RunSettings:
    return RunSettings.model_validate({"budget": 50, **more})


@pytest.mark.parametrize(
    ("more", "by"),
    [
        ({}, None),
        ({"target": "1.8x"}, "target"),
        ({"target": "1.81x"}, None),
        ({"target": "bound:0.7"}, "target"),
        ({"target": "bound:0.71"}, None),
        ({"max_time": 600}, "time"),
        ({"max_time": 601}, None),
        ({"until": 1e9}, "time"),
        ({"until": 1e9 + 1}, None),
        ({"patience": 4}, "patience"),
        ({"patience": 5}, None),
    ],
)
def test_an_end_comes_when_it_is_reached_and_not_before(more: dict[str, object], by: str | None) -> None:
    end = end_of(settings(**more), STANDING)
    assert (end.by if end is not None else None) == by


def test_the_budget_ends_a_search_by_what_is_used_of_it() -> None:
    end = end_of(settings(), replace(STANDING, used=50))
    assert end is not None
    assert (end.by, end.reason) == ("budget", "the budget of 50 candidates is used up")


def test_without_a_best_no_target_is_met() -> None:
    nothing = replace(STANDING, speedup=None, bound=None)
    assert end_of(settings(target="1.1x"), nothing) is None
    assert end_of(settings(target="bound:0.1"), nothing) is None


def test_the_forecast_is_the_first_end_at_the_present_pace() -> None:
    assert forecast(settings(), STANDING) == Forecast(900.0, "budget")
    assert forecast(settings(max_time=800), STANDING) == Forecast(200.0, "time")
    assert forecast(settings(until=1e9 + 60), STANDING) == Forecast(60.0, "time")
    assert forecast(settings(), replace(STANDING, judged=0)) is None
    assert forecast(settings(max_time=800), replace(STANDING, judged=0)) == Forecast(200.0, "time")
    assert forecast(settings(), replace(STANDING, judged=60)) == Forecast(0.0, "budget")


def test_the_share_of_the_bound_needs_both_baselines() -> None:
    assert bound_share(2.0, {"baselines": {"eager": 100.0, "bound": 25.0}}) == 0.5
    assert bound_share(2.0, {"baselines": {"eager": 100.0}}) is None
    assert bound_share(None, {"baselines": {"eager": 100.0, "bound": 25.0}}) is None
    assert bound_share(2.0, {}) is None
