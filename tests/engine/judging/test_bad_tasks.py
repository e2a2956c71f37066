"""A task that cannot be judged is refused with one sentence before any candidate runs."""

from __future__ import annotations

import sys

import pytest

from engine.judging.evaluator import Evaluator
from engine.judging.facts import MachineError
from engine.judging.settings import JudgeSettings
from engine.judging.workers.reference import Reference
from engine.tasks.catalogue import TaskError
from engine.tasks.opening import TaskProblem, load_module
from tests.engine.judging.conftest import SCALE_TASK, make_task

BAD = {
    "no_model": ("x = 1", "defines no class Model that is a torch.nn.Module"),
    "no_inputs": (SCALE_TASK.replace("def get_inputs", "def inputs"), "defines no function get_inputs"),
    "raises": (SCALE_TASK.replace("return x *", "return y *"), "fails in forward: NameError: name 'y' is not defined"),
    "syntax": ("def f(:", "has a syntax error in line 1: invalid syntax"),
    "import": ("import nowhere_xyz", "cannot be imported: ModuleNotFoundError: No module named 'nowhere_xyz'"),
    "init_object": (SCALE_TASK.replace("[3.0, COLUMNS]", "[object()]"), "gives its constructor a value of type object"),
    "init_missing": (SCALE_TASK.replace("[3.0, COLUMNS]", "[]"), "fails in Model: TypeError: "),
    "input_object": (
        SCALE_TASK.replace("[torch.randn(ROWS, COLUMNS)]", "[torch.randn(ROWS, COLUMNS), open('/dev/null')]"),
        "has a value of type TextIOWrapper among its inputs, which cannot be handed to a candidate",
    ),
    "empty_input": (
        SCALE_TASK.replace("torch.randn(ROWS, COLUMNS)", "torch.randn(0, COLUMNS)"),
        "has an input without elements: x has shape [0, 50]",
    ),
    "nothing": (
        SCALE_TASK.replace("return x * self.factor + self.bias", "pass"),
        "has nothing to compare: its reference returns no tensor",
    ),
    "output_object": (
        SCALE_TASK.replace("return x * self.factor + self.bias", "return self"),
        "returns a value of type Model, which cannot be compared",
    ),
    "remembers": (
        SCALE_TASK.replace("return x *", "self.factor += 1.0\n        return x *"),
        "gives other outputs when",
    ),
    "random": (
        SCALE_TASK.replace("return x *", "return torch.rand_like(x) *"),
        "gives other outputs when it is called",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_task_is_refused_in_one_sentence(kind: str) -> None:
    source, sentence = BAD[kind]
    with pytest.raises(TaskProblem) as caught:
        Reference(load_module(source, {"ROWS": 7, "COLUMNS": 50}, "task"), "cpu", None, secret=3).check()
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


async def test_the_sentence_names_the_task(cpu_settings: JudgeSettings) -> None:
    with pytest.raises(TaskError, match=r"^the task scale fails in forward: NameError: name 'y' is not defined\.$"):
        await Evaluator(make_task(BAD["raises"][0]), cpu_settings).open()


async def test_a_task_that_does_not_fit_into_memory_is_the_machines_matter(cpu_settings: JudgeSettings) -> None:
    huge = SCALE_TASK.replace("torch.randn(ROWS, COLUMNS)", "torch.randn(1 << 23, 1 << 23)")
    with pytest.raises(MachineError, match=r"^the task scale does not fit into this machine's memory: ") as caught:
        await Evaluator(make_task(huge), cpu_settings).open()
    assert "\n" not in str(caught.value)


async def test_a_judge_that_is_killed_while_it_opens_the_task_is_told_of(cpu_settings: JudgeSettings) -> None:
    killed = SCALE_TASK.replace("def get_inputs():", "def get_inputs():\n    import os; os.kill(os.getpid(), 9)")
    with pytest.raises(MachineError, match=r"ended the judge while it opened the task scale, most likely for lack of"):
        await Evaluator(make_task(killed), cpu_settings).open()


@pytest.mark.parametrize("wanted", ["auto", "cuda:0"])
def test_a_gpu_of_another_make_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    import torch

    from engine.judging.workers import judge

    monkeypatch.setattr(torch.version, "hip", "6.2.41134")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(
        RuntimeError, match=r"for AMD GPUs and kernels are measured on NVIDIA's only; choose --device cpu"
    ):
        judge._device(wanted)
    assert judge._device("cpu") == "cpu"


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
