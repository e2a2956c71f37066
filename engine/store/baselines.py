"""What candidates are compared with, kept per task, case, tier, device and all that the times depend on."""

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
    now = time.time()
    connection.executemany(
        "INSERT INTO baselines (task, case_name, name, tier, kind, device, toolchain, time_us, detail, measured_at)"
        " SELECT :task, :case_name, :name, :tier, :kind, :device, :toolchain, :time_us, :detail, :now"
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
                "toolchain": _words(facts.get("fingerprint") or facts.get("toolchain", {})),
                "time_us": time_us,
                "detail": json.dumps(detail),
                "now": now,
            }
            for case, tier, name, time_us, detail in _times(facts)
        ],
    )


def find(connection: sqlite3.Connection, task: int, fingerprint: Mapping[str, str]) -> list[dict[str, Any]]:
    """What was measured last of a task under the same circumstances, by case and tier, as the judge takes it back."""
    rows = connection.execute(
        "SELECT cases.position, baselines.tier, baselines.detail FROM baselines JOIN cases"
        " ON cases.task = baselines.task AND cases.name = baselines.case_name"
        " WHERE baselines.task = ? AND baselines.name = 'eager' AND baselines.kind = 'measured'"
        " AND baselines.toolchain = ? AND baselines.detail != '{}' ORDER BY baselines.id",
        (task, _words(fingerprint)),
    )
    latest = {(row[0], row[1]): json.loads(row[2]) for row in rows}
    return [{"case": case, "tier": tier, **compared} for (case, tier), compared in latest.items()]


def _words(circumstances: Mapping[str, str]) -> str:
    return json.dumps(dict(circumstances), sort_keys=True)


def _times(facts: Mapping[str, Any]) -> Iterator[tuple[str, str, str, float, Mapping[str, Any]]]:
    """Case, tier, name, time in microseconds and all else that is known of every baseline in the judge's facts."""
    for case in facts.get("cases", ()):
        for tier, times in case["tiers"].items():
            for name, time_us in times.items():
                # What a later run takes over lies with eager, which everything was measured against.
                detail = case.get("compared", {}).get(tier, {}) if name == "eager" else {}
                yield case["name"], tier, name, time_us, detail
        for tier, bound_us in case.get("bounds", {}).items():
            yield case["name"], tier, "bound", bound_us, {}
