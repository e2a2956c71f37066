"""Starts an engine's process, detached, so that it outlives the terminal."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from engine.store.lease import Holder
from engine.store.reader import Reader

START_TIMEOUT_S = 30.0


class LaunchError(Exception):
    """The engine did not start; the message is its own last word."""


def log_path(db: Path, run: int) -> Path:
    """Where an engine's own complaints go: beside the database."""
    return db.resolve().parent / ".kernelgrove" / f"{db.name}-run-{run}.log"


def launch(db: Path, run: int) -> Holder:
    """Starts an engine for a run and returns once it holds the run's lease.

    Raises:
        LaunchError: it ended at once, for instance because another engine holds the run.
    """
    log = log_path(db, run)
    log.parent.mkdir(exist_ok=True)
    with log.open("ab") as output:
        start = output.tell()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "engine.loop.process", str(db.resolve()), str(run)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_TIMEOUT_S
    with Reader(db) as reader:
        while time.monotonic() < deadline:
            holder = reader.holder(run)
            if holder is not None and holder.pid == process.pid:
                return holder
            if process.poll() is not None:
                raise LaunchError(_last_line(log, start) or f"the engine ended at once; see {log}")
            time.sleep(0.02)
    process.kill()
    raise LaunchError(f"the engine did not start within {START_TIMEOUT_S:.0f} s; see {log}")


def _last_line(log: Path, start: int) -> str:
    with log.open("rb") as written:
        written.seek(start)
        lines = written.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
