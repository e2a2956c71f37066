"""Lowers all tasks once and runs what came out in the interpreter once; the tests look at the results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import engine.tasks

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
# Function tasks become modules before they are lowered.
BUILTIN = sorted(
    path for path in Path(engine.tasks.__path__[0], "builtin").glob("[!_]*.py") if "class Model" in path.read_text()
)
FOREIGN = sorted((HERE / "tasks").glob("*.py"))
SLOW_NAMES = ("batch_norm_training", "causal_attention", "group_norm_activations", "lstm", "undeclared_pooling")
SLOW = [path for path in FOREIGN if path.stem in SLOW_NAMES]
QUICK = [*BUILTIN, *(path for path in FOREIGN if path not in SLOW)]


@dataclass(frozen=True)
class LoweredFolder:
    """Where the texts are, and the report of the process that wrote them."""

    path: Path
    report: dict[str, Any]

    def texts(self, task: str) -> dict[str, str]:
        return {file.stem: file.read_text() for file in sorted((self.path / task).glob("*.py"))}


def run_worker(name: str, *arguments: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, str(HERE / name), *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=arguments[0],
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="session")
def lowered(tmp_path_factory: pytest.TempPathFactory) -> LoweredFolder:
    return lower(tmp_path_factory.mktemp("lowered"), QUICK)


@pytest.fixture(scope="session")
def interpreted(lowered: LoweredFolder) -> dict[str, float | str]:
    return interpret(lowered, QUICK)


@pytest.fixture(scope="session")
def slowly_lowered(tmp_path_factory: pytest.TempPathFactory) -> LoweredFolder:
    return lower(tmp_path_factory.mktemp("slowly"), SLOW)


def lower(folder: Path, files: list[Path]) -> LoweredFolder:
    run_worker("lowering_worker.py", folder, *files)
    return LoweredFolder(folder, json.loads((folder / "report.json").read_text()))


def interpret(lowered: LoweredFolder, files: list[Path]) -> dict[str, float | str]:
    output = run_worker("interpreting_worker.py", lowered.path, *files)
    results: dict[str, float | str] = json.loads(output.splitlines()[-1])
    return results
