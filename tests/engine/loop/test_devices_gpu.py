"""A search on several GPUs of one model: both judge at once, and one tree comes of it."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

from engine.api import start_run
from engine.records import RunState
from engine.settings import RunSettings
from engine.store.reader import Reader
from engine.tasks.catalogue import find_task
from tests.engine.loop.processes import until

BUDGET = 8


def gpus() -> int:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return 0
    return subprocess.run([tool, "-L"], capture_output=True, text=True, check=False).stdout.count("GPU ")


@pytest.mark.gpu
@pytest.mark.timeout(1200)
@pytest.mark.skipif(gpus() < 2, reason="needs two NVIDIA GPUs")
def test_two_gpus_judge_one_tree_at_once(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    run = start_run(db, find_task("swiglu"), RunSettings(budget=BUDGET, device="cuda:0,1"))

    def ended() -> bool:
        with Reader(db) as reader:
            overview = reader.run(run)
            return overview is not None and overview.run.state.ended

    until(ended, 1100, "the end of the run")
    with Reader(db) as reader:
        overview = reader.run(run)
    assert overview is not None
    assert overview.run.state is RunState.DONE, overview.run.reason
    assert overview.judged == BUDGET
    assert overview.correct >= 2
    connection = sqlite3.connect(db)
    overlapping = connection.execute(
        "SELECT count(*) FROM evaluations AS one JOIN evaluations AS other ON one.id < other.id"
        " AND one.started_at < other.ended_at AND other.started_at < one.ended_at"
    ).fetchone()[0]
    connection.close()
    assert overlapping >= BUDGET // 2, "neither device was idle while candidates waited"
