"""What candidates are compared with, kept per task, case, tier, device and toolchain."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from typing import Any


def keep(connection: sqlite3.Connection, run: int, device: str, kind: str, facts: Mapping[str, Any]) -> None:
    """Writes the baselines in the judge's facts; needs an open write transaction.

    Times that are known already are not written again: each start of an engine finds them anew.
    """
    task = connection.execute("SELECT task FROM runs WHERE id = ?", (run,)).fetchone()[0]
    toolchain = json.dumps(facts.get("toolchain", {}), sort_keys=True)
    connection.executemany(
        "INSERT INTO baselines (task, case_name, name, tier, kind, device, toolchain, time_us, measured_at)"
        " SELECT :task, :case_name, :name, :tier, :kind, :device, :toolchain, :time_us, :now"
        " WHERE NOT EXISTS (SELECT 1 FROM baselines WHERE task = :task AND case_name = :case_name"
        " AND name = :name AND tier = :tier AND kind = :kind AND device = :device"
        " AND toolchain = :toolchain AND time_us = :time_us)",
        [
            {
                "task": task,
                "case_name": case,
                "name": name,
                "tier": tier,
                "kind": kind,
                "device": device,
                "toolchain": toolchain,
                "time_us": time_us,
                "now": time.time(),
            }
            for case, tier, name, time_us in _times(facts)
        ],
    )


def _times(facts: Mapping[str, Any]) -> Iterator[tuple[str, str, str, float]]:
    """Case, tier, name and time in microseconds of every baseline in the judge's facts."""
    for case in facts.get("cases", ()):
        for tier, times in case["tiers"].items():
            for name, time_us in times.items():
                yield case["name"], tier, name, time_us
        if case["bound_us"] is not None:
            yield case["name"], "exact", "bound", case["bound_us"]
