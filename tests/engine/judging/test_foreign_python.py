"""Candidates are judged in the interpreter that the person names; it needs torch and triton and nothing of ours."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from engine.judging.evaluator import Evaluator
from engine.judging.settings import JudgeSettings
from engine.records import Verdict
from tests.engine.judging.conftest import SCALE_TASK, make_task, scale_candidate

OURS = ("kernelgrove", "__editable__", "pydantic", "textual", "sqlite_utils", "click", "openai", "ast_grep", "rich")


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """An environment with what torch and triton need, and without what Kernelgrove itself needs."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(OURS):
            (packages / entry.name).symlink_to(entry)
    return environment / "bin" / "python"


async def test_a_candidate_is_judged_in_another_environment(foreign: Path) -> None:
    missing = subprocess.run([str(foreign), "-P", "-c", "import pydantic"], capture_output=True, text=True)
    assert "ModuleNotFoundError" in missing.stderr
    async with Evaluator(
        make_task(SCALE_TASK, {"ROWS": 7, "COLUMNS": 50}), JudgeSettings(device="cpu", python=str(foreign))
    ) as judge:
        facts = await judge.open()
        evaluation = await judge.evaluate(scale_candidate())
    assert facts.toolchain["torch"]
    assert evaluation.verdict is Verdict.CORRECT, evaluation.reason
