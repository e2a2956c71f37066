"""How the command line says things, in the words that it shares with the screens."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from engine.ends import Forecast, forecast
from engine.records import Candidate, CandidateState, ProposerKind, RunState
from engine.settings import parse_run_settings
from engine.store.reader import Reader, RunOverview
from tui.commands.context import CommandFailed
from tui.state.structures import TriedStructure
from tui.state.words import clean, speedup_text, time_text


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
            "source_path": _source_file(reader, run.id, run.best),
        }
    engine = overview.engine
    return {
        "run": run.id,
        "name": run.name,
        "task": run.task,
        "audit": run.audit.to_json() if run.audit is not None else None,
        "state": str(run.state),
        "ended_by": run.ended_by,
        "reason": run.reason,
        "candidates": overview.candidates,
        "judged": overview.judged,
        "budget": run.budget,
        "correct": overview.correct,
        "awaiting_approval": overview.waiting_approval,
        "best": best,
        "cost": _cost(overview),
        "seconds": round(run.active_seconds, 1),
        "device": run.device,
        "settings": dict(run.settings),
        "waiting": [{"candidate": waiting.candidate, "for": waiting.what} for waiting in reader.awaited(run.id)],
        "forecast": asdict(ahead) if (ahead := forecast_of(reader, overview)) else None,
        "engine": {"pid": engine.pid, "host": engine.host, "heartbeat_age_s": round(heartbeat_age(overview), 1)}
        if engine is not None and engine.alive
        else None,
    }


def forecast_of(reader: Reader, overview: RunOverview) -> Forecast | None:
    """When the run will end as it goes now; None where no engine works on it."""
    if overview.engine is None or not overview.engine.alive or overview.run.state is not RunState.RUNNING:
        return None
    return forecast(parse_run_settings(overview.run.settings), reader.standing(overview, time.time()))


def _cost(overview: RunOverview) -> dict[str, Any]:
    """What models were asked for a run; money is None where no price is known for some of it."""
    spending = overview.spending
    return {
        "usd": None if spending.unpriced else spending.usd,
        "reserved_usd": spending.reserved_usd,
        "max_usd": overview.run.settings.get("max_cost"),
        "tokens": spending.tokens_in + spending.tokens_out,
        "tokens_in": spending.tokens_in,
        "tokens_out": spending.tokens_out,
        "tokens_reasoning": spending.tokens_reasoning,
        "calls": spending.calls,
        "failures": dict(spending.failures),
    }


def _source_file(reader: Reader, run: int, number: int) -> str | None:
    """Writes a candidate's text beside the database and returns the file's path; None where nothing can be written."""
    path = reader.path.resolve().parent / ".kernelgrove" / f"{reader.path.name}-run-{run}-candidate-{number}.py"
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_text(reader.source(run, number) or "", encoding="utf-8", errors="surrogatepass")
    except OSError:
        return None
    return str(path)


def read_source(file: Path) -> str:
    """The text of a kernel's file.

    Raises:
        CommandFailed: it cannot be read.
    """
    try:
        return file.read_text("utf-8")
    except OSError as error:
        raise CommandFailed(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandFailed(f"{file} is not UTF-8 text") from error


def heartbeat_age(overview: RunOverview) -> float:
    """Seconds since the engine last said that it lives."""
    return max(time.time() - overview.engine.heartbeat_at, 0.0) if overview.engine else 0.0


def judging_words(settings: Mapping[str, Any]) -> str:
    """How a run's candidates are judged, from its stored settings, which may be of an older version."""
    words = [f"numerics {settings.get('numerics', 'reduced')}", f"time {settings.get('time', 'launch')}"]
    words.append(f"cache {settings.get('cache', 'cold')}")
    if settings.get("dtype"):
        words.append(f"dtype {settings['dtype']}")
    if settings.get("no_regress") is not None:
        words.append(f"no regress {settings['no_regress']:g}%")
    words += [f"baseline {clean(file)}" for file in settings.get("baseline", ())]
    return ", ".join(words)


def structure_line(structure: TriedStructure) -> str:
    """A structure that was tried, on one line."""
    best = f"best {speedup_text(structure.speedup)} ({structure.best})" if structure.speedup else "none correct"
    parts = [
        f"{structure.number:>4}",
        f"{structure.members:>3} tried, {structure.correct:>3} correct",
        f"{best:<18}",
        f"{structure.bound:>4.0%} of the bound" if structure.bound is not None else "",
        f"novelty {structure.novelty:.2f}" if structure.novelty is not None else "",
        structure.idea,
    ]
    return clean("  ".join(part for part in parts if part))


def candidate_line(candidate: Candidate) -> str:
    """A candidate on one line."""
    state = str(candidate.verdict or candidate.state).replace("_", " ")
    if candidate.state is CandidateState.PROPOSING and candidate.proposer is ProposerKind.MANUAL:
        state = "awaiting answer"
    parts = [f"{candidate.number:>4}", f"{candidate.step:<10}", f"{state:<16}"]
    if candidate.time_us is not None:
        parts.append(f"{time_text(candidate.time_us):>9} {speedup_text(candidate.speedup):>7}")
    elif candidate.reason:
        parts.append(candidate.reason)
    parts.append(candidate.idea)
    if candidate.labels:
        parts.append(f"[{', '.join(candidate.labels)}]")
    return clean("  ".join(part for part in parts if part))
