"""A task that cannot be judged ends a command with one sentence and its exit code, and leaves no run behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.judging.conftest import SCALE_TASK, scale_candidate
from tests.tui.commands.conftest import Call

RAISES = SCALE_TASK.replace("return x *", "raise ValueError('not today')\n        return x *")
HUGE = SCALE_TASK.replace("torch.randn(ROWS, COLUMNS)", "torch.randn(1 << 23, 1 << 23)")


@pytest.mark.parametrize(
    ("source", "code", "sentence"),
    [
        (SCALE_TASK.replace("def get_inputs", "def inputs"), 2, "defines no get_inputs"),
        ("\0", 2, "is not valid Python"),
        (RAISES, 2, "the task mine fails in forward: ValueError: not today."),
        (HUGE, 3, "the task mine does not fit into this machine's memory"),
    ],
    ids=["no_inputs", "no_python", "raises", "huge"],
)
def test_a_search_on_a_bad_task_is_refused_and_leaves_nothing_behind(
    call: Call, db: Path, tmp_path: Path, source: str, code: int, sentence: str
) -> None:
    (tmp_path / "mine.py").write_text(source)
    outcome = call("run", "mine.py", "--device", "cpu", "--headless")
    assert outcome.code == code
    assert sentence in outcome.err
    assert outcome.err.startswith("kernelgrove: ") and outcome.err.count("\n") == 1
    assert outcome.out == ""
    assert not db.exists()


def test_an_unreadable_task_is_refused_by_every_command(call: Call, db: Path, tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    for command in (["run", "folder.py", "--headless"], ["eval", "folder.py", "folder.py"], ["audit", "folder.py"]):
        outcome = call(*command)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err == "kernelgrove: the task folder.py cannot be read: Is a directory\n"
    assert not db.exists()


def test_eval_says_what_the_audit_found_of_the_task(call: Call, tmp_path: Path) -> None:
    (tmp_path / "offset.py").write_text(SCALE_TASK.replace("self.bias\n\n\ndef", "self.bias + 1e3\n\n\ndef"))
    (tmp_path / "kernel.py").write_text(scale_candidate(("factor + bias", "factor + bias + 1000.0")))
    document = json.loads(call("eval", "offset.py", "kernel.py", "--device", "cpu", "--json").out)
    assert document["task"]["audit"] == "insensitive"
    assert "the rest is an offset" in document["task"]["findings"][0]
