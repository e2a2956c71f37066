"""What is known of a measurement beside its time, as named lines for the inspector and `show`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from engine.records import CaseResult
from engine.result_line import baseline_words
from tui.state.words import bytes_text, clean, time_text


def measurement_lines(case: CaseResult) -> Iterator[tuple[str, str]]:
    """Names and texts: fresh processes, what was autotuned, what the device went through, memory, and notes."""
    if case.measurement is None:
        return
    detail = case.measurement.detail
    sessions = detail.get("sessions", ())
    if sessions:
        yield "fresh processes", ", ".join(time_text(session["time_us"]) for session in sessions)
    for choice in detail.get("tuned", ()):
        words = ", ".join(f"{name} {value}" for name, value in choice["config"].items())
        yield "autotuned", clean(f"{choice['kernel']}: {words}")
    last = (sessions[-1] if sessions else detail).get("blocks", ())
    if device := _device_words([block for block in last if block["side"] == "candidate"]):
        yield "device", device
    peaks = detail.get("baseline_peak_bytes", {})
    if case.peak_bytes and peaks:
        others = ", ".join(f"{clean(baseline_words(name))} {bytes_text(size)}" for name, size in peaks.items())
        yield "memory", f"{bytes_text(case.peak_bytes)}; {others}"
    for note in detail.get("notes", ()):
        yield "note", clean(note)


def _device_words(blocks: list[Mapping[str, Any]]) -> str:
    """Clocks, power and temperature over the candidate's blocks, as far as the device told them."""
    parts = []
    for name, unit in (("sm_mhz", "MHz"), ("power_w", "W"), ("temperature_c", "C")):
        values = [block[name] for block in blocks if name in block]
        if values:
            low, high = min(values), max(values)
            parts.append(f"{low:.0f} {unit}" if f"{low:.0f}" == f"{high:.0f}" else f"{low:.0f} to {high:.0f} {unit}")
    reasons = sorted({reason for block in blocks for reason in block.get("throttled", ())})
    return ", ".join([*parts, *(f"limited by {reason}" for reason in reasons)])
