"""A task that cannot be judged is refused with one sentence before any candidate runs."""

from __future__ import annotations

import sys

import pytest

from engine.judging.evaluator import Evaluator
from engine.judging.facts import MachineError
from engine.judging.settings import JudgeSettings
from engine.tasks.catalogue import TaskError
from tests.engine.judging.conftest import SCALE_TASK, make_task


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("x = 1", "the task scale defines no class Model that is a torch.nn.Module."),
        (SCALE_TASK.replace("def get_inputs", "def inputs"), "the task scale defines no function get_inputs."),
        (
            SCALE_TASK.replace("return x *", "return y *"),
            "the task scale fails in forward: NameError: name 'y' is not defined.",
        ),
        ("def f(:", "the task scale has a syntax error in line 1: invalid syntax."),
        (
            "import nowhere_xyz",
            "the task scale cannot be imported: ModuleNotFoundError: No module named 'nowhere_xyz'.",
        ),
        (
            SCALE_TASK.replace("[3.0, COLUMNS]", "[object()]"),
            "the task scale gives its constructor a value of type object, which",
        ),
        (SCALE_TASK.replace("[3.0, COLUMNS]", "[]"), "the task scale fails in Model: TypeError: "),
    ],
)
async def test_a_bad_task_is_refused_in_one_sentence(cpu_settings: JudgeSettings, source: str, sentence: str) -> None:
    with pytest.raises(TaskError) as caught:
        await Evaluator(make_task(source), cpu_settings).open()
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


async def test_an_interpreter_that_is_not_there_is_named() -> None:
    with pytest.raises(MachineError, match="/no/such/python cannot be started"):
        await Evaluator(make_task(SCALE_TASK), JudgeSettings(device="cpu", python="/no/such/python")).open()


async def test_an_interpreter_without_torch_is_named() -> None:
    base = sys.base_prefix + "/bin/python3"
    with pytest.raises(MachineError, match="No module named 'torch'"):
        await Evaluator(make_task(SCALE_TASK), JudgeSettings(device="cpu", python=base)).open()


async def test_a_gpu_that_is_not_there_is_said(cpu_settings: JudgeSettings) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(MachineError, match="no device cuda:0"):
        await Evaluator(make_task(SCALE_TASK), JudgeSettings(device="cuda:0")).open()
