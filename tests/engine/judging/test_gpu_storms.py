"""Storms of faults on a GPU: each kind many times in a row among honest candidates, and its memory is given back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pynvml
import pytest
import pytest_asyncio

from engine.judging.evaluator import Evaluator
from engine.judging.settings import JudgeSettings
from engine.records import Verdict
from tests.engine.judging.conftest import SCALE_TASK, make_task, scale_candidate
from tests.engine.judging.test_bad_candidates import in_forward, in_module
from tests.engine.judging.test_fault_storms import AT_ONCE, DEVICE_ASSERT, weather

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="module")]

SETTINGS = JudgeSettings(device="cuda:0", seed=20240601, timeout_s=20.0, baselines=("eager",))
SLACK_BYTES = 256 << 20
"""Device memory that may stay taken: far less than the context of one process that did not end."""

FAR_AWAY = scale_candidate(("x_ptr + row * columns + column, mask=mask", "x_ptr + (1 << 42) + column"))
ENDLESS = scale_candidate(
    (
        "    x = tl.load",
        "    turns = columns\n"
        "    while turns > 0:\n"
        "        tl.debug_barrier()\n"
        "        turns += tl.load(bias_ptr + row % 2, volatile=True).to(tl.int32) * 0\n"
        "    x = tl.load",
    )
)
STORMS = {
    "illegal address": (FAR_AWAY, {Verdict.RUNTIME_ERROR}),
    "device assert": (DEVICE_ASSERT, {Verdict.RUNTIME_ERROR}),
    "device memory": (in_forward("torch.empty(1 << 42, device='cuda')"), {Verdict.OUT_OF_MEMORY}),
    "device memory bit by bit": (
        in_forward("self.held = [torch.empty(1 << 30, device='cuda') for _ in range(1000)]"),
        {Verdict.OUT_OF_MEMORY},
    ),
    "segmentation fault beside the device": (
        in_forward("torch.ones(8, device='cuda'); import ctypes; ctypes.string_at(0)"),
        {Verdict.RUNTIME_ERROR},
    ),
    "exit beside the device": (in_forward("import os; os._exit(0)"), {Verdict.RUNTIME_ERROR}),
    "much memory held": (
        in_module("HELD = [torch.ones(1 << 28, device='cuda') for _ in range(4)]"),
        {Verdict.CORRECT},
    ),
}


def used_bytes() -> int:
    """What is taken of the first GPU's memory, by whomever."""
    pynvml.nvmlInit()
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).used)
    finally:
        pynvml.nvmlShutdown()


async def given_back(before: int) -> bool:
    """Waits until no more of the device's memory is taken than before."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if await asyncio.to_thread(used_bytes) < before + SLACK_BYTES:
            return True
    return False


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shelter() -> AsyncIterator[Evaluator]:
    async with Evaluator(make_task(SCALE_TASK, {"ROWS": 7, "COLUMNS": 50}), SETTINGS) as judge:
        # The first ones make what is kept for all: memory that is lent, the interpreter's processes.
        await asyncio.gather(*(judge.evaluate(scale_candidate()) for _ in range(AT_ONCE + 1)))
        yield judge


@pytest.mark.parametrize("kind", STORMS)
async def test_a_storm_leaves_neighbours_and_device_as_they_were(shelter: Evaluator, kind: str) -> None:
    before = used_bytes()
    await weather(shelter, *STORMS[kind])
    assert await given_back(before)


async def test_endless_kernels_end_at_their_deadlines_and_free_the_device() -> None:
    task = make_task(SCALE_TASK, {"ROWS": 7, "COLUMNS": 50})
    async with Evaluator(task, replace(SETTINGS, timeout_s=6.0)) as judge:
        await asyncio.gather(*(judge.evaluate(scale_candidate()) for _ in range(AT_ONCE + 1)))
        before = used_bytes()
        await weather(judge, ENDLESS, {Verdict.TIMEOUT})
        assert await given_back(before)
