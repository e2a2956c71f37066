"""With --dtype, floating inputs and weights are of that type in every form, and everything else stays as it is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
import torch

from engine.judging.evaluator import Evaluator
from engine.judging.settings import JudgeSettings
from engine.judging.workers import large_form
from engine.judging.workers.reference import Reference
from engine.judging.workers.trials import TRIALS
from engine.records import Evaluation, Verdict
from engine.tasks.catalogue import read_task
from engine.tasks.opening import load_module

TASK = '''
"""Gather rows and scale."""
import torch
from torch import nn
ROWS, COLUMNS, PICKED = 4096, 2048, 8192
SMALL = {"ROWS": 12, "COLUMNS": 50, "PICKED": 9}

class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))
    def forward(self, table, rows, extra):
        return table[rows] * self.scale + extra[0], rows + 1

def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randint(0, ROWS, (PICKED,)), [torch.randn(PICKED, COLUMNS)]]
def get_init_inputs():
    return [COLUMNS]
'''

CANDIDATE = """
import torch, triton, triton.language as tl
from torch import nn
@triton.jit
def gather(table, rows, scale, extra, y, r, columns, BLOCK: tl.constexpr):
    i = tl.program_id(0)
    row = tl.load(rows + i)
    c = tl.arange(0, BLOCK)
    m = c < columns
    v = tl.load(table + row * columns + c, mask=m).to(tl.float32) * tl.load(scale + c, mask=m).to(tl.float32)
    v += tl.load(extra + i * columns + c, mask=m).to(tl.float32)
    tl.store(y + i * columns + c, v, mask=m)
    tl.store(r + i, row + 1)
class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))
    def forward(self, table, rows, extra):
        y = torch.empty(rows.shape[0], table.shape[1], dtype=table.dtype, device=table.device)
        r = torch.empty_like(rows)
        columns = table.shape[1]
        block = triton.next_power_of_2(columns)
        gather[(rows.shape[0],)](table, rows, self.scale, extra[0], y, r, columns, BLOCK=block)
        return y, r
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judge(cpu_settings: JudgeSettings) -> AsyncIterator[Evaluator]:
    async with Evaluator(read_task(TASK, "gather.py"), replace(cpu_settings, dtype="bfloat16")) as evaluator:
        yield evaluator


async def _judged(judge: Evaluator, old: str = "", new: str = "") -> Evaluation:
    assert old in CANDIDATE
    return await judge.evaluate(CANDIDATE.replace(old, new))


@pytest.mark.asyncio(loop_scope="module")
async def test_a_candidate_is_judged_and_modelled_at_the_dtype(judge: Evaluator) -> None:
    evaluation = await _judged(judge)
    assert evaluation.verdict is Verdict.CORRECT, evaluation.reason
    assert evaluation.labels == () and evaluation.time_us is not None
    assert evaluation.numerics is not None and evaluation.numerics.tier == "exact"
    assert evaluation.numerics.reference_noise > 1e-4, "the reference itself is rounded to bfloat16"
    assert judge.facts is not None
    shown = [str(tensor) for tensor in judge.facts.cases[0].inputs]
    assert shown == ["bfloat16[4096, 2048]", "int64[8192]", "bfloat16[8192, 2048]"]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("dtype=table.dtype", "dtype=torch.float32", "output 0 has dtype float32 where the reference has bfloat16"),
        ("tl.store(r + i, row + 1)", "tl.store(r + i, row + 1 + i // 8)", "output 1: 1 of 9 int64 values differ"),
        ("v += ", "v += 1.1 * ", "wrong values for secret inputs 1"),
    ],
    ids=["wide_output", "whole_number", "rough"],
)
async def test_halves_are_no_excuse(judge: Evaluator, old: str, new: str, sentence: str) -> None:
    evaluation = await _judged(judge, old, new)
    assert evaluation.verdict is Verdict.INCORRECT
    assert sentence in evaluation.reason


def test_reference_weights_and_large_form_are_cast_and_whole_numbers_are_not() -> None:
    module = load_module(TASK, {"ROWS": 12, "COLUMNS": 50, "PICKED": 9}, "task")
    question = Reference(module, "cpu", torch.float16, secret=5).question(TRIALS[0])
    assert question is not None
    assert [tensor.dtype for tensor in question.tensors] == [torch.float16, torch.int64, torch.float16]
    assert [tensor.dtype for tensor in question.truth.own] == [torch.float16, torch.int64]
    assert [tensor.dtype for tensor in question.truth.exact] == [torch.float64, torch.int64]
    whole, half = (large_form.describe(load_module(TASK, {}, "task"), dtype) for dtype in (None, torch.float16))
    assert whole.cost is not None and half.cost is not None
    moved, picked = whole.cost["bound"]["bytes"], 2 * 8 * 8192
    assert half.cost["bound"]["bytes"] - picked == pytest.approx((moved - picked) / 2)
