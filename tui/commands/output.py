"""How the command line says things; screens share the words in `tui.state`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from engine.records import Candidate
from engine.store.reader import Reader, RunOverview


def print_json(document: object) -> None:
    """Prints one JSON document and nothing else."""
    click.echo(json.dumps(document, indent=2))


def run_document(reader: Reader, overview: RunOverview) -> dict[str, Any]:
    """What `run --headless --json` and `status --json` say of a run."""
    run = overview.run
    best: Mapping[str, Any] | None = None
    if run.best is not None:
        evaluation = reader.evaluation(run.id, run.best)
        best = {
            "candidate": run.best,
            "speedup": dict(evaluation.speedup) if evaluation else {},
            "time_us": overview.best_time_us,
            "source_path": None,
        }
    engine = overview.engine
    return {
        "run": run.id,
        "name": run.name,
        "task": run.task,
        "state": str(run.state),
        "ended_by": run.ended_by,
        "reason": run.reason,
        "candidates": overview.candidates,
        "judged": overview.judged,
        "budget": run.budget,
        "correct": overview.correct,
        "awaiting_approval": overview.waiting_approval,
        "best": best,
        "cost": {"usd": 0.0, "tokens": 0},
        "seconds": round(run.active_seconds, 1),
        "device": run.device,
        "engine": {"pid": engine.pid, "host": engine.host, "heartbeat_age_s": round(heartbeat_age(overview), 1)}
        if engine is not None and engine.alive
        else None,
    }


def heartbeat_age(overview: RunOverview) -> float:
    """Seconds since the engine last said that it lives."""
    import time

    return max(time.time() - overview.engine.heartbeat_at, 0.0) if overview.engine else 0.0


def time_text(time_us: float | None) -> str:
    """A time with three digits and a unit that fits: `12.3 us`, `4.56 ms`."""
    if time_us is None:
        return "-"
    for unit, factor in (("s", 1e6), ("ms", 1e3)):
        if time_us >= factor:
            return f"{time_us / factor:.3g} {unit}"
    return f"{time_us:.3g} us"


def speedup_text(speedup: float | None) -> str:
    """A ratio as engineers write it: `1.42x`."""
    return "-" if speedup is None else f"{speedup:.2f}x"


def candidate_line(candidate: Candidate) -> str:
    """A candidate on one line."""
    state = str(candidate.verdict or candidate.state).replace("_", " ")
    parts = [f"{candidate.number:>4}", f"{candidate.step:<10}", f"{state:<16}"]
    if candidate.time_us is not None:
        parts.append(f"{time_text(candidate.time_us):>9} {speedup_text(candidate.speedup):>7}")
    elif candidate.reason:
        parts.append(candidate.reason)
    parts.append(candidate.idea)
    if candidate.labels:
        parts.append(f"[{', '.join(candidate.labels)}]")
    return "  ".join(part for part in parts if part)
