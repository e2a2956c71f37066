"""The audit says which tasks cannot tell right from wrong, and is content with those that can."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from engine.judging.crew import Crew, task_message
from engine.judging.evaluator import Evaluator
from engine.judging.settings import JudgeSettings
from engine.judging.workers.audit import audit_task, nearest_wrong_answer
from engine.judging.workers.reference import Reference
from engine.judging.workers.trials import AGAIN, TRIALS
from engine.records import Audit, Soundness, Task, Verdict
from engine.tasks.catalogue import builtin_tasks, read_task
from engine.tasks.opening import load_module
from engine.tasks.scaling import scaled_sources
from tests.engine.judging.conftest import SCALE_TASK, make_task, scale_candidate

HEAD = """
import torch
from torch import nn

rows, width = 64, 256


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        x = self.linear(x)
"""

TAIL = """

def get_inputs():
    return [torch.rand(rows, width)]


def get_init_inputs():
    return [width]
"""

KINDS = {
    "the product itself": ("return x", Soundness.SOUND),
    "a rectifier that nothing passes": ("return torch.relu(x - 5.0)", Soundness.DEGENERATE),
    "a difference that vanishes": ("return x.amax(1, True) - x.amax(1, True).mean(1, True)", Soundness.DEGENERATE),
    "a mean of what was centred": ("return nn.functional.layer_norm(x, x.shape[-1:]).mean(1)", Soundness.DEGENERATE),
    "a softmax over very many": ("return torch.softmax(x.flatten(), 0).view(x.shape)", Soundness.INSENSITIVE),
    "a sum far from zero": ("return torch.sigmoid(0.01 * x).sum(1)", Soundness.INSENSITIVE),
    "a constant and a trace": ("return 1.0 + 1e-9 * x.double()", Soundness.DEGENERATE),
    "a large offset": ("return x + 1000.0", Soundness.INSENSITIVE),
    "inputs that do not matter": ("return x * 0.0 + self.linear.weight[: len(x)]", Soundness.INSENSITIVE),
    "dropout": ("return nn.functional.dropout(x, 0.5)", Soundness.STOCHASTIC),
    "digits that cancel": ("return (x + 1e5) - 1e5", Soundness.ILL_CONDITIONED),
    "whole numbers": ("return x.argmax(1)", Soundness.SOUND),
}


def _audit(source: str, small: Mapping[str, object] | None = None, dtype: torch.dtype | None = None) -> Audit:
    case = {"name": "default", "overrides": {}, "small_overrides": dict(small or {})}
    return audit_task({"source": source, "cases": [case]}, "cpu", dtype, secret=77)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_task_gets_its_verdict(kind: str) -> None:
    end, verdict = KINDS[kind]
    audit = _audit(f"{HEAD}        {end}\n{TAIL}", {"rows": 16})
    assert audit.verdict is verdict, audit.findings
    if verdict is not Soundness.SOUND:
        assert audit.findings, "a verdict must say why"


@pytest.mark.parametrize("task", builtin_tasks(), ids=lambda task: task.name)
def test_the_built_in_tasks_are_sound(task: Task) -> None:
    audit = audit_task(task_message(task), "cpu", None, secret=78)
    assert (audit.verdict, audit.findings) == (Soundness.SOUND, ())


def test_a_weight_that_does_not_matter_is_told() -> None:
    end = "return nn.functional.instance_norm(x.t()[None])[0].t()"
    audit = _audit(f"{HEAD}        {end}\n{TAIL}")
    assert audit.verdict is Soundness.SOUND
    assert audit.findings == ("its weight linear.bias does not show in its values: a candidate may leave it out",)


def test_a_half_type_widens_the_gate_and_may_make_a_task_ill_conditioned() -> None:
    source = f"{HEAD}        return x + 20.0\n{TAIL}"
    assert _audit(source).verdict is not Soundness.ILL_CONDITIONED
    assert "rounding alone" in _audit(source, dtype=torch.bfloat16).findings[0]


def test_without_a_small_form_sizes_are_divided_as_far_as_the_reference_runs() -> None:
    huge = f"{HEAD}        return x\n{TAIL}".replace("rows, width = 64, 256", "rows, width = 1 << 22, 1 << 15")
    first = load_module(next(scaled_sources(huge, {})), {}, "task")
    (x,) = first.get_inputs()
    assert 8 <= x.shape[0] <= 64 and x.shape[1] ** 2 <= 1 << 26
    assert first.get_init_inputs() == [x.shape[1]], "weights follow the constants that they share with inputs"
    odd = huge.replace("x = self.linear(x)", "x = self.linear(x)[: 1 << 22].view(-1, 1024, width)[0]").replace(
        "1 << 15", "64"
    )
    audit = _audit(odd.replace("1 << 22", "4096"))
    assert audit.verdict is Soundness.SOUND, "where the smallest form fails, the next one is taken"


async def test_the_judge_takes_an_earlier_audit_and_makes_one_where_there_is_none(cpu_settings: JudgeSettings) -> None:
    task = make_task(SCALE_TASK, {"ROWS": 7, "COLUMNS": 50})
    earlier = Audit(Soundness.INSENSITIVE, ("said before",))
    async with Evaluator(task, cpu_settings, audit=earlier) as judge:
        assert (await judge.open()).audit == earlier
    assert (await Crew(task, cpu_settings).audit(for_search=True)).verdict is Soundness.SOUND


async def test_a_gate_stays_clear_of_the_nearest_wrong_answer(cpu_settings: JudgeSettings) -> None:
    # Rows differ by a thousandth of what all have in common: the tiers alone would let one stand for another.
    close = SCALE_TASK.replace("torch.randn(ROWS, COLUMNS)", "torch.randn(COLUMNS) + 1e-3 * torch.randn(ROWS, COLUMNS)")
    small = {"ROWS": 7, "COLUMNS": 50}
    reference = Reference(load_module(close, small, "task"), "cpu", None, cpu_settings.seed)
    question, other = reference.question(TRIALS[0]), reference.question(AGAIN[0])
    assert question is not None and other is not None
    assert nearest_wrong_answer(question, other)[1] < 2e-3
    first_row = scale_candidate(("x_ptr + row * columns", "x_ptr + 0 * columns"))
    async with Evaluator(make_task(close, small), cpu_settings) as judge:
        evaluation = await judge.evaluate(first_row)
    assert evaluation.verdict is Verdict.INCORRECT
    assert "secret inputs 1:" in evaluation.reason


def test_tasks_of_several_cases_say_which_case_is_meant() -> None:
    source = """
import torch

SIZE = 64
SMALL = {"SIZE": 32}


def reference(x, offset):
    return x + offset


CASES = [
    {"name": "near", "inputs": {"x": ("float32", SIZE, SIZE), "offset": 0.5}},
    {"name": "far", "inputs": {"x": ("float32", SIZE, SIZE), "offset": 500.0}},
]
"""
    audit = audit_task(task_message(read_task(source, "shift.py")), "cpu", None, secret=79)
    assert audit.verdict is Soundness.INSENSITIVE
    assert all(finding.startswith("case far: ") for finding in audit.findings)
