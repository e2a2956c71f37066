"""What beside right or wrong is said of a candidate: precision, labels, weights, time, and the document it becomes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from engine.judging.evaluator import Evaluator
from engine.judging.report import evaluation_json, summary
from engine.judging.settings import JudgeSettings
from engine.records import Case, MeasurementKind, Task, Verdict
from tests.engine.judging.conftest import SCALE_TASK, make_task, scale_candidate

pytestmark = pytest.mark.asyncio(loop_scope="module")

MATMUL_TASK = """
import torch
from torch import nn

N = 256
SMALL = {"N": 32}


class Model(nn.Module):
    def forward(self, x, y):
        return x @ y


def get_inputs():
    return [torch.randn(N, N), torch.randn(N, N)]
"""

MATMUL_CANDIDATE = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def matmul_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, n, BLOCK):
        k = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + rows[:, None] * n + k[None, :])
        y = tl.load(y_ptr + k[:, None] * n + columns[None, :])
        total += tl.dot(x, y)
    tl.store(out_ptr + rows[:, None] * n + columns[None, :], total)


class ModelNew(nn.Module):
    def forward(self, x, y):
        n = x.shape[0]
        out = torch.empty(n, n, device=x.device)
        matmul_kernel[(n // 32, n // 32)](x, y, out, n, BLOCK=32)
        return out
"""

NESTED_TASK = """
import torch
from torch import nn

SIZE = 64


class Model(nn.Module):
    def forward(self, x, flag, pair):
        values, places = torch.sort(x, dim=-1)
        return {"sorted": (values, places), "sum": pair[0] + pair[1], "flag": flag}


def get_inputs():
    return [torch.randn(SIZE, SIZE), True, (torch.ones(3), torch.ones(3))]
"""

NESTED_CANDIDATE = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, flag, pair):
        values, places = torch.sort(x, dim=-1)
        return {"sorted": [values, places], "sum": pair[0] + pair[1], "flag": flag}
"""


async def test_modelled_time_and_resources_come_with_a_correct_candidate(judge: Evaluator) -> None:
    evaluation = await judge.evaluate(scale_candidate())
    assert evaluation.verdict is Verdict.CORRECT
    (case,) = evaluation.cases
    assert case.measurement is not None
    assert case.measurement.kind is MeasurementKind.MODELLED
    assert case.bound_us is not None
    assert evaluation.time_us == pytest.approx(case.measurement.time_us)
    assert case.measurement.time_us >= case.bound_us > 0
    assert evaluation.speedup["eager"] == pytest.approx(case.baselines["eager"] / case.measurement.time_us)
    assert evaluation.bound_fraction == pytest.approx(case.bound_us / case.measurement.time_us)
    (kernel,) = evaluation.static
    assert (kernel.kernel, kernel.arch) == ("scale_kernel", "sm_90")
    assert kernel.registers > 0
    assert evaluation.fingerprint


async def test_the_document_has_every_field_and_null_for_what_is_unknown(judge: Evaluator) -> None:
    evaluation = await judge.evaluate(scale_candidate())
    document = json.loads(json.dumps(evaluation_json(evaluation, "scale")))
    assert list(document) == [
        "verdict", "labels", "reason", "stage", "numerics", "checks", "cases", "time_us", "speedup", "speedup_ci95",
        "standing", "bound_fraction", "static", "task", "device", "toolchain", "seconds",
        "stage_seconds",
    ]  # fmt: skip
    assert document["speedup"]["compile"] is None
    assert document["cases"][0]["measurement"]["kind"] == "modelled"
    assert document["task"] == {"name": "scale", "audit": None, "findings": []}
    assert "\n" not in summary(evaluation)
    assert summary(evaluation).startswith("correct: ")
    wrong = await judge.evaluate("x = 1")
    assert summary(wrong) == "compile_error: in load: the candidate defines no class ModelNew"
    assert evaluation_json(wrong, "scale")["cases"][0]["measurement"] is None


async def test_an_evaluation_says_where_its_time_went(judge: Evaluator) -> None:
    evaluation = await judge.evaluate(scale_candidate())
    stages = evaluation.stage_seconds
    assert list(stages) == ["start", "load", "compile", "correct", "honest", "time", "after", "model"]
    assert all(seconds >= 0 for seconds in stages.values())
    assert 0.5 * evaluation.seconds < sum(stages.values()) < evaluation.seconds + 0.1


async def test_the_facts_of_the_task_describe_the_large_form(judge: Evaluator) -> None:
    facts = await judge.open()
    assert facts.kind is MeasurementKind.MODELLED
    assert [str(item) for item in facts.cases[0].inputs] == ["float32[4096, 1024]"]
    assert facts.cases[0].baselines["eager"] > 0
    assert facts.toolchain["arch"] == "sm_90"


async def test_a_candidate_without_a_kernel_is_labelled(judge: Evaluator) -> None:
    plain = scale_candidate(("        y = torch.empty_like(x)\n", "        return x * self.factor + self.bias\n"))
    evaluation = await judge.evaluate(plain)
    assert evaluation.verdict is Verdict.CORRECT
    assert "no_triton" in evaluation.labels
    assert not evaluation.eligible()


async def test_weights_that_stay_as_they_were_first_seen_are_labelled(judge: Evaluator) -> None:
    change = ("        y = torch", "        self.first = getattr(self, 'first', self.bias.clone())\n        y = torch")
    evaluation = await judge.evaluate(scale_candidate(change).replace("(x, self.bias,", "(x, self.first,"))
    assert evaluation.verdict is Verdict.CORRECT
    assert "frozen_weights" in evaluation.labels
    assert not evaluation.eligible()


async def test_weights_under_other_names_are_made_from_the_same_seed(judge: Evaluator) -> None:
    made = ("self.bias = nn.Parameter(torch.zeros(columns))", "self.b = nn.Parameter(torch.randn(columns))")
    evaluation = await judge.evaluate(scale_candidate(made).replace("self.bias", "self.b"))
    assert evaluation.verdict is Verdict.CORRECT
    assert evaluation.labels == ()
    details = [check.detail for check in evaluation.checks if check.name == "weights"]
    assert details == ["1 of 1 weights found by name or by value"]


async def test_wrong_only_for_inputs_outside_the_usual_range_is_wrong(judge: Evaluator) -> None:
    clipped = scale_candidate(("x * factor + bias", "tl.minimum(x, 6.0) * factor + bias"))
    evaluation = await judge.evaluate(clipped)
    assert evaluation.verdict is Verdict.INCORRECT
    assert evaluation.reason.startswith("wrong values for inputs 4 times as large: ")


async def test_what_only_the_compiler_refuses_is_a_compile_error(judge: Evaluator) -> None:
    # A variable that changes its type inside a branch is fine in the interpreter and refused by the compiler.
    branch = "    odd = factor\n    if row >= 0:\n        odd = tl.arange(0, BLOCK)\n    tl.store"
    evaluation = await judge.evaluate(scale_candidate(("    tl.store", branch)))
    assert evaluation.verdict is Verdict.COMPILE_ERROR, evaluation.reason
    assert evaluation.stage == "compile"
    assert "kernel scale_kernel does not compile" in evaluation.reason
    assert "\n" not in evaluation.reason


async def test_a_module_that_ends_the_compilers_process_is_a_compile_error(judge: Evaluator) -> None:
    # Only the compiling child runs without the interpreter.
    ends = "import os, triton\nif not triton.knobs.runtime.interpret: os._exit(4)\n"
    evaluation = await judge.evaluate(ends + scale_candidate())
    assert evaluation.verdict is Verdict.COMPILE_ERROR
    assert "exit code 4" in evaluation.reason


async def test_a_candidate_that_fails_only_at_the_large_form_has_no_time(judge: Evaluator) -> None:
    small_only = "        assert x.shape[0] == 7, 'only seven rows'\n        y = torch.empty_like(x)\n"
    evaluation = await judge.evaluate(scale_candidate(("        y = torch.empty_like(x)\n", small_only)))
    assert evaluation.verdict is Verdict.CORRECT
    assert evaluation.time_us is None
    assert evaluation.reason == "its time cannot be modelled: AssertionError: only seven rows (line 25)"
    assert not evaluation.eligible()


@pytest.mark.parametrize(("numerics", "verdict"), [("strict", Verdict.INCORRECT), ("reduced", Verdict.CORRECT)])
async def test_tf32_in_the_compiled_code_is_reduced_precision(
    cpu_settings: JudgeSettings, numerics: str, verdict: Verdict
) -> None:
    task = make_task(MATMUL_TASK, {"N": 32}, "matmul")
    async with Evaluator(task, replace(cpu_settings, numerics=numerics)) as judge:
        reduced = await judge.evaluate(MATMUL_CANDIDATE)
        exact = await judge.evaluate(MATMUL_CANDIDATE.replace("tl.dot(x, y)", "tl.dot(x, y, input_precision='ieee')"))
    assert reduced.verdict is verdict
    assert "reduced_precision" in reduced.labels
    assert reduced.numerics is not None and reduced.numerics.tier == "reduced"
    if verdict is Verdict.INCORRECT:
        assert "--numerics strict" in reduced.reason
    assert exact.verdict is Verdict.CORRECT
    assert exact.numerics is not None and exact.numerics.tier == "exact"
    assert "reduced_precision" not in exact.labels


async def test_pytorchs_own_product_earns_nothing_over_itself(cpu_settings: JudgeSettings) -> None:
    task = make_task(MATMUL_TASK.replace("N = 256", "N = 4096"), {"N": 32}, "matmul")
    async with Evaluator(task, cpu_settings) as judge:
        evaluation = await judge.evaluate(MATMUL_TASK.replace("class Model(", "class ModelNew("))
    assert evaluation.verdict is Verdict.CORRECT
    assert evaluation.labels == ("no_triton",)
    assert evaluation.speedup["eager"] == pytest.approx(1.0, rel=0.01)


async def test_nested_outputs_and_inputs_of_other_kinds(cpu_settings: JudgeSettings) -> None:
    async with Evaluator(make_task(NESTED_TASK, {"SIZE": 8}, "nested"), cpu_settings) as judge:
        right = await judge.evaluate(NESTED_CANDIDATE)
        wrong_place = await judge.evaluate(NESTED_CANDIDATE.replace("[values, places]", "[values, places.flip(0)]"))
        flag = await judge.evaluate(NESTED_CANDIDATE.replace('"flag": flag', '"flag": not flag'))
    assert right.verdict is Verdict.CORRECT, right.reason
    assert wrong_place.verdict is Verdict.INCORRECT
    assert "int64 values differ" in wrong_place.reason
    assert "{sorted: [tensor, tensor], sum: tensor, flag: bool}" in flag.reason


async def test_every_case_must_be_right_and_counts_by_its_weight(cpu_settings: JudgeSettings) -> None:
    cases = (
        Case("narrow", 1.0, {"ROWS": 1 << 14, "COLUMNS": 64}, {"ROWS": 5, "COLUMNS": 20}),
        Case("wide", 3.0, {"ROWS": 1 << 14, "COLUMNS": 4096}, {"ROWS": 3, "COLUMNS": 70}),
    )
    async with Evaluator(Task("scale", "test", "kernelbench", "scale.py", SCALE_TASK, cases), cpu_settings) as judge:
        right = await judge.evaluate(scale_candidate())
        narrow_only = await judge.evaluate(scale_candidate(("triton.next_power_of_2(x.shape[1])", "32")))
        block = "triton.next_power_of_2(x.shape[1])"
        other_when_wide = await judge.evaluate(scale_candidate((block, f"{block} * (2 if x.shape[1] > 1000 else 1)")))
    times = [case.measurement.time_us for case in right.cases if case.measurement is not None]
    assert right.verdict is Verdict.CORRECT
    assert right.time_us == pytest.approx((times[0] * times[1] ** 3) ** 0.25)
    assert narrow_only.verdict is Verdict.INCORRECT
    assert other_when_wide.verdict is Verdict.CORRECT
    assert other_when_wide.fingerprint != right.fingerprint, "the same code in one case does not make it the same"


async def test_a_task_can_be_judged_in_another_dtype(cpu_settings: JudgeSettings) -> None:
    task = make_task(SCALE_TASK, {"ROWS": 7, "COLUMNS": 50})
    async with Evaluator(task, replace(cpu_settings, dtype="float16")) as judge:
        facts = await judge.open()
        evaluation = await judge.evaluate(scale_candidate())
    assert facts.cases[0].inputs[0].dtype == "float16"
    assert evaluation.verdict is Verdict.CORRECT, evaluation.reason
    assert evaluation.numerics is not None
    assert evaluation.numerics.reference_noise > 1e-5
