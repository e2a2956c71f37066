"""How long a change of state with its event takes to be on disk, against a bare commit of one row.

Run: python benchmarks/state_change.py
"""

from __future__ import annotations

import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from engine.records import CandidateState, ProposerKind, Step
from engine.settings import RunSettings
from engine.store.control import Control
from engine.store.run_store import RunStore
from engine.tasks.catalogue import find_task

CHANGES = 300


def median_ms(work: Callable[[int], object], times: int) -> float:
    passed = []
    for index in range(times):
        start = time.perf_counter()
        work(index)
        passed.append((time.perf_counter() - start) * 1e3)
    return statistics.median(passed)


def main() -> None:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        bare = sqlite3.connect(Path(folder) / "bare.db", isolation_level=None)
        bare.execute("PRAGMA journal_mode = WAL")
        bare.execute("PRAGMA synchronous = FULL")
        bare.execute("CREATE TABLE rows (value INTEGER)")
        bare_ms = median_ms(lambda index: bare.execute("INSERT INTO rows VALUES (?)", (index,)), CHANGES)

        db = Path(folder) / "runs.db"
        with Control(db) as control:
            run = control.create_run(find_task("softmax"), RunSettings(budget=CHANGES))
        store = RunStore.take(db, run)
        for index in range(CHANGES):
            number = store.add_candidate(None, Step.STRUCTURAL, ProposerKind.COMPILER, {})
            store.proposed(number, f"source {index}", "idea", {}, gated=False)
        assert len(store.candidates(CandidateState.QUEUED)) == CHANGES
        change_ms = median_ms(lambda index: store.claim(index + 1), CHANGES)
        store.release()
    print(f"bare commit of one row      {bare_ms:7.2f} ms median")
    print(f"change of state with event  {change_ms:7.2f} ms median, {change_ms / bare_ms:.1f}x the bare commit")


if __name__ == "__main__":
    main()
