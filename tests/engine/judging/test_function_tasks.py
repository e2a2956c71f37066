"""Function tasks in the judge: arguments that are outputs, domains that inputs stay in, tolerances of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from engine.judging.evaluator import Evaluator
from engine.judging.settings import JudgeSettings
from engine.records import Verdict
from engine.tasks.catalogue import TaskError, read_task

TASK = """
import torch

ROWS, COLUMNS = 4096, 1024
SMALL = {"ROWS": 6, "COLUMNS": 40}
ENTRY = "update"
MUTATES = ["state"]
DOMAINS = {"variance": "positive"}


def reference(state, x, variance, rate):
    state.lerp_(x, rate)
    return state / variance.log1p().sqrt()


CASES = [
    {"name": "wide", "inputs": {"state": ("float32", ROWS, COLUMNS), "x": ("float32", ROWS, COLUMNS),
                                "variance": ("float32", COLUMNS), "rate": 0.25}, "weight": 2.0},
    {"name": "narrow", "inputs": {"state": ("float32", ROWS, COLUMNS), "x": ("float32", ROWS, COLUMNS),
                                  "variance": ("float32", COLUMNS), "rate": 0.75}, "small": {"COLUMNS": 7}},
]
"""

CANDIDATE = """
import torch
import triton
import triton.language as tl


@triton.jit
def update_kernel(state_ptr, x_ptr, variance_ptr, y_ptr, columns, rate, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    place = row * columns + column
    state = tl.load(state_ptr + place, mask=mask)
    x = tl.load(x_ptr + place, mask=mask)
    variance = tl.load(variance_ptr + column, mask=mask, other=1.0)
    state += (x - state) * rate
    tl.store(state_ptr + place, state, mask=mask)
    tl.store(y_ptr + place, state / tl.sqrt(tl.log(1.0 + variance)), mask=mask)


def update(state, x, variance, rate):
    y = torch.empty_like(state)
    columns = state.shape[1]
    block = triton.next_power_of_2(columns)
    update_kernel[(state.shape[0],)](state, x, variance, y, columns, rate, BLOCK=block)
    return y
"""


def _changed(old: str, new: str) -> str:
    assert old in CANDIDATE
    return CANDIDATE.replace(old, new)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judge(cpu_settings: JudgeSettings) -> AsyncIterator[Evaluator]:
    async with Evaluator(read_task(TASK, "update.py"), cpu_settings) as evaluator:
        yield evaluator


@pytest.mark.asyncio(loop_scope="module")
async def test_a_function_is_judged_on_every_case_with_its_weight(judge: Evaluator) -> None:
    evaluation = await judge.evaluate(CANDIDATE)
    assert evaluation.verdict is Verdict.CORRECT, evaluation.reason
    assert evaluation.labels == ()
    wide, narrow = evaluation.cases
    assert (wide.name, narrow.name) == ("wide", "narrow")
    assert wide.measurement is not None and narrow.measurement is not None and evaluation.time_us is not None
    mean = (wide.measurement.time_us**2 * narrow.measurement.time_us) ** (1 / 3)
    assert evaluation.time_us == pytest.approx(mean)
    assert wide.bound_us is not None and judge.facts is not None
    # Two matrices are read, and the changed one and the result are written: more than three can move in that time.
    assert wide.bound_us > 1.2 * 3 * 4096 * 1024 * 4 / 4.9e12 * 1e6


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (_changed("    tl.store(state_ptr + place, state, mask=mask)\n", ""), "wrong values for secret inputs 1"),
        (_changed("    return y", "    x.zero_()\n    return y"), "changes input 1 in place"),
        (_changed("    return y", "    return y, state"), "returns (tensor, tensor) where"),
        (_changed("def update(", "def renew("), "defines no function update"),
        (_changed("def update(", "update = 3\n\n\ndef renew("), "update is no function"),
        (_changed("x, variance, rate):\n    y", "x, variance):\n    y"), "positional arguments but 4 were given"),
        (_changed("tl.log(1.0 + variance)", "tl.log(1.0 + tl.minimum(variance, 2.0))"), "4 times as large"),
    ],
    ids=["state_left_as_it_was", "undeclared_change", "state_returned", "name", "kind", "signature", "range"],
)
async def test_what_is_not_the_function_is_refused(judge: Evaluator, source: str, sentence: str) -> None:
    evaluation = await judge.evaluate(source)
    assert evaluation.verdict in (Verdict.INCORRECT, Verdict.COMPILE_ERROR, Verdict.RUNTIME_ERROR)
    assert sentence in evaluation.reason


@pytest.mark.asyncio(loop_scope="module")
async def test_a_candidate_that_uses_the_declared_domain_is_right(judge: Evaluator) -> None:
    source = _changed("tl.log(1.0 + variance)", "tl.log(1.0 + tl.abs(variance))")
    evaluation = await judge.evaluate(source)
    assert evaluation.verdict is Verdict.CORRECT, evaluation.reason


@pytest.mark.asyncio(loop_scope="module")
async def test_a_library_may_write_the_state(judge: Evaluator) -> None:
    source = _changed("    tl.store(state_ptr + place, state, mask=mask)\n", "")
    source = source.replace("    return y", "    state.lerp_(x, rate)\n    return y")
    evaluation = await judge.evaluate(source)
    assert evaluation.verdict is Verdict.CORRECT, evaluation.reason
    assert evaluation.labels == ()


async def test_a_case_may_carry_its_own_tolerance(cpu_settings: JudgeSettings) -> None:
    rough = _changed("state / tl.sqrt(tl.log(1.0 + variance))", "1.004 * state / tl.sqrt(tl.log(1.0 + variance))")
    strict = JudgeSettings(device="cpu", seed=cpu_settings.seed, timeout_s=20.0, numerics="strict")
    tolerant = TASK.replace('"rate": 0.25}', '"rate": 0.25}, "rtol": 0.005')
    tolerant = tolerant.replace('"rate": 0.75}', '"rate": 0.75}, "rtol": 0.005')
    async with Evaluator(read_task(tolerant, "update.py"), strict) as judge:
        evaluation = await judge.evaluate(rough)
        assert evaluation.verdict is Verdict.CORRECT, evaluation.reason
        assert evaluation.numerics is not None and evaluation.numerics.tier == "bf16"
        (said, again) = (check for check in evaluation.checks if check.name == "tolerance")
        assert said.detail == again.detail and "rtol 0.005" in said.detail
        worse = await judge.evaluate(rough.replace("1.004", "1.006"))
        assert worse.verdict is Verdict.INCORRECT
        assert "further from the truth than the case's atol 0 and rtol 0.005" in worse.reason


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            ('MUTATES = ["state"]', "MUTATES = []"),
            "changes its argument state in place, which its MUTATES does not name",
        ),
        (('"positive"', '"negative"'), "the domain 'negative' of variance does not exist"),
        (('{"variance": "positive"}', '{"sigma": "positive"}'), "DOMAINS names sigma, which is no argument"),
    ],
)
async def test_a_task_that_declares_what_is_not_so_is_refused(
    cpu_settings: JudgeSettings, change: tuple[str, str], sentence: str
) -> None:
    assert change[0] in TASK
    with pytest.raises(TaskError, match=sentence):
        await Evaluator(read_task(TASK.replace(*change), "update.py"), cpu_settings).open()
