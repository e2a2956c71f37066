"""Tasks: the built-in ones run at their small form, and what is no task is refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.records import Task
from engine.tasks.catalogue import TaskError, builtin_tasks, find_task, read_task
from engine.tasks.opening import load_module

FAMILIES = {
    "elementwise",
    "softmax",
    "normalisation",
    "reduction",
    "matmul",
    "pooling",
    "attention",
    "loss",
}


def test_the_built_in_tasks_cover_the_families_engineers_meet() -> None:
    tasks = builtin_tasks()
    assert len(tasks) >= 8
    assert {task.family for task in tasks} == FAMILIES


@pytest.mark.parametrize("task", builtin_tasks(), ids=lambda task: task.name)
def test_a_built_in_task_runs_at_its_small_form_and_small_means_small(task: Task) -> None:
    for case in task.cases:
        module = load_module(task.source, {**case.overrides, **case.small_overrides}, task.name)
        inputs = [value for value in module.get_inputs() if isinstance(value, torch.Tensor)]
        assert sum(tensor.numel() for tensor in inputs) < 40_000
        output = module.Model(*module.get_init_inputs())(*module.get_inputs())
        assert all(torch.isfinite(part).all() for part in (output if isinstance(output, tuple) else (output,)))


def test_a_task_is_found_by_name_and_by_path(tmp_path: Path) -> None:
    softmax = find_task("softmax")
    copy = tmp_path / "mine.py"
    copy.write_text(softmax.source)
    assert find_task(str(copy)).name == "mine"
    assert find_task(str(copy)).cases == softmax.cases


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("def (", "not valid Python in line 1"),
        ("x = 1\0", "not valid Python"),
        ("class Model: ...\ndef get_inputs(): ...\n", "defines no get_init_inputs"),
        ("def get_inputs(): ...\ndef get_init_inputs(): ...\n", "defines no Model"),
        (
            "N = 4\nSMALL = {'M': 3}\nclass Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n",
            "replaces M",
        ),
        ("SMALL = 3\nclass Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n", "must be a dict"),
    ],
)
def test_what_is_no_task_is_refused_in_one_sentence(source: str, sentence: str) -> None:
    with pytest.raises(TaskError, match=sentence) as refusal:
        read_task(source, "tasks/mine.py")
    assert "tasks/mine.py" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_task_file_is_read_and_never_run(tmp_path: Path) -> None:
    trap = tmp_path / "trap.py"
    trap.write_text(find_task("softmax").source + f"\nopen({str(tmp_path / 'ran')!r}, 'w')\n")
    find_task(str(trap))
    assert not (tmp_path / "ran").exists()
