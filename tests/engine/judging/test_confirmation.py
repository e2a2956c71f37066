"""What fresh processes find together: the time that counts, and whether they agree."""

from __future__ import annotations

from typing import Any

import pytest

from engine.judging.confirmation import Bar, merged, request
from engine.records import Evaluation, Verdict


def session(time_us: float, speedup: float, half: float = 0.005, **detail: Any) -> dict[str, Any]:
    """A judge's message about a candidate with one case."""
    measurement = {
        "time_us": time_us,
        "ci95_us": [time_us * 0.99, time_us / 0.99],
        "baselines": {},
        "peak_bytes": int(time_us),
        "detail": {
            "rounds": 7, "repeated": 0, "iterations": 100, "medians_us": [time_us], "reference_medians_us": [1.0],
            "wall_us": 1.0, "blocks": [], "band": 0.01, "tier": "exact", "tuned": [], "notes": [],
            "baseline_peak_bytes": {},
            "speedups": {"eager": [speedup, half], "compile": [speedup / 2, half], "eager_strict": [speedup, half]},
            **detail,
        },
    }  # fmt: skip
    numerics = {"tier": "exact"}
    return {"reason": "", "cases": [{"labels": [], "numerics": numerics, "measurement": measurement}]}


def test_the_session_that_looked_fast_is_left_out_of_the_time() -> None:
    found = merged(session(8.0, 2.0), [session(10.0, 2.0), session(10.2, 1.98), session(9.8, 2.02)])
    measurement = found["cases"][0]["measurement"]
    assert measurement["time_us"] == pytest.approx(10.0, rel=1e-3)
    low, high = measurement["ci95_us"]
    assert low < 9.8 < 10.2 < high
    assert measurement["detail"]["speedups"]["eager"][0] == pytest.approx(2.0, rel=1e-3)
    assert measurement["baselines"] == {
        "eager": pytest.approx(20.0, rel=1e-3),
        "compile": pytest.approx(10.0, rel=1e-3),
    }
    assert measurement["peak_bytes"] == 10
    assert measurement["detail"]["rounds"] == 21
    assert [s["time_us"] for s in measurement["detail"]["sessions"]] == [10.0, 10.2, 9.8]
    assert measurement["detail"]["first"]["time_us"] == 8.0
    assert found["cases"][0]["labels"] == []


def test_processes_that_disagree_are_unstable_and_say_how() -> None:
    found = merged(session(10.0, 2.0), [session(10.0, 2.0), session(12.0, 1.7)])
    assert found["cases"][0]["labels"] == ["unstable"]
    assert found["reason"] == "timed in 3 processes it is 1.7x to 2x as fast as eager, 18% apart"


def test_a_device_that_is_slower_for_a_while_makes_nothing_unstable() -> None:
    assert merged(session(10.0, 2.0), [session(14.0, 2.0)])["cases"][0]["labels"] == []


def test_noisy_sessions_may_differ_by_their_noise() -> None:
    noisy = merged(session(10.0, 2.0, half=0.06), [session(10.0, 1.82, half=0.06)])
    assert noisy["cases"][0]["labels"] == []


def test_fresh_processes_are_told_the_tier_and_what_was_tuned() -> None:
    tuned = [{"kernel": "k", "key": [], "config": {"num_warps": 4}}]
    assert request(session(10.0, 2.0, tuned=tuned)) == [{"tier": "exact", "tuned": tuned}]


@pytest.mark.parametrize(
    ("time_us", "labels", "bar", "cleared"),
    [
        (10.0, (), Bar(), True),
        (10.0, (), Bar(9.9), True),
        (10.0, (), Bar(9.0), False),
        (None, (), Bar(), False),
        (10.0, ("no_triton",), Bar(), False),
        (10.0, ("no_triton",), Bar(allow=frozenset({"no_triton"})), True),
    ],
)
def test_who_may_be_best(time_us: float | None, labels: tuple[str, ...], bar: Bar, cleared: bool) -> None:
    assert bar.cleared_by(Evaluation(Verdict.CORRECT, "time", "", labels=labels, time_us=time_us)) is cleared
