"""What is said of a measurement beside its time."""

from __future__ import annotations

from typing import Any

from engine.records import CaseResult, Measurement, MeasurementKind, Verdict
from tui.state.timing_words import measurement_lines


def lines(peak_bytes: int | None = None, **detail: Any) -> dict[str, str]:
    measurement = Measurement(MeasurementKind.MEASURED, 10.0, (9.9, 10.1), detail=detail)
    return dict(measurement_lines(CaseResult("default", 1.0, Verdict.CORRECT, measurement, peak_bytes=peak_bytes)))


def block(side: str, **state: Any) -> dict[str, Any]:
    return {"round": 1, "side": side, "time_us": 10.0, **state}


def test_a_modelled_time_says_nothing_more() -> None:
    assert lines(parts=[]) == {}
    assert dict(measurement_lines(CaseResult("default", 1.0, Verdict.INCORRECT))) == {}


def test_a_winner_says_how_it_was_measured() -> None:
    blocks = [
        block("candidate", sm_mhz=1980.0, power_w=512.4, temperature_c=41.0, throttled=["power cap"]),
        block("candidate", sm_mhz=1755.0, power_w=600.2, temperature_c=41.0),
        block("eager", sm_mhz=300.0),
    ]
    said = lines(
        peak_bytes=32 << 20,
        sessions=[{"time_us": 10.0, "blocks": []}, {"time_us": 10.2, "blocks": blocks}],
        tuned=[{"kernel": "k\x1b[31m", "key": ["1024"], "config": {"BLOCK": 128, "num_warps": 4}, "of": 8}],
        baseline_peak_bytes={"eager": 48 << 20, "compile_max": 16 << 20},
        notes=["while it was timed, process 7 (trainer) computes on it"],
    )
    assert said == {
        "fresh processes": "10.0 us, 10.2 us",
        "autotuned": "k␛[31m: BLOCK 128, num_warps 4",
        "device": "1755 to 1980 MHz, 512 to 600 W, 41 C, limited by power cap",
        "memory": "32 MiB; eager 48 MiB, max-autotune 16 MiB",
        "note": "while it was timed, process 7 (trainer) computes on it",
    }


def test_a_device_that_tells_nothing_is_not_mentioned() -> None:
    assert lines(blocks=[block("candidate")], notes=[], tuned=[]) == {}
