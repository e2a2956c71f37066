"""On a GPU a candidate keeps no memory, leaves no process, and reaches neither the judge nor memory of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from engine.judging.evaluator import Evaluator
from engine.judging.settings import JudgeSettings
from engine.records import Verdict
from tests.engine.judging.conftest import SCALE_TASK, make_task, scale_candidate
from tests.engine.judging.test_bad_candidates import in_forward, in_module
from tests.engine.judging.test_fault_storms import settled
from tests.engine.judging.test_gpu_storms import given_back, used_bytes
from tests.engine.judging.test_sandbox import (
    DAEMON,
    LANDLOCK_ALONE,
    REACHES_OUT,
    REFUSED,
    Found,
    World,
    found_under,
    world,
)

pytestmark = [pytest.mark.gpu, pytest.mark.asyncio(loop_scope="module")]

SETTINGS = JudgeSettings(device="cuda:0", seed=20240601, timeout_s=60.0, baselines=("eager",), second_opinion=False)
TASK = make_task(SCALE_TASK)
FORGES_HANDLES = (Path(__file__).parents[2] / "candidates" / "sandbox" / "forges_handles.py").read_text()
# Expected values are searched for in the device's memory, not in the process's.
REACHES_OUT_ON_GPU = REACHES_OUT.replace(
    "if not self.looked and x.shape[0] == 7:", 'print("MEMORY {}")\n        if False:'
)

__all__ = ["world"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def found(world: World) -> dict[str, Found]:
    assert REACHES_OUT_ON_GPU != REACHES_OUT
    return {
        setting: await found_under(setting, world, SETTINGS, REACHES_OUT_ON_GPU, TASK)
        for setting in ("auto", LANDLOCK_ALONE)
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gpu() -> AsyncIterator[Evaluator]:
    async with Evaluator(TASK, SETTINGS) as judge:
        await judge.evaluate(scale_candidate())
        yield judge


@pytest.mark.parametrize("what", ["others environ", "others memory", "others files"])
async def test_environment_memory_and_files_of_the_judge_are_closed(found: dict[str, Found], what: str) -> None:
    for here in found.values():
        here.needs("landlock")
        assert here.with_others(what) <= REFUSED


async def test_the_judge_cannot_be_signalled(found: dict[str, Found]) -> None:
    for here in found.values():
        here.needs("signals")
        assert here.with_others("others signal") == {"EPERM"}


@pytest.mark.parametrize(
    "attempt", ["read database", "write database", "read the judge's log", "move out of the scratch folder"]
)
async def test_files_outside_the_scratch_folder_are_closed(found: dict[str, Found], attempt: str) -> None:
    for here in found.values():
        here.needs("landlock")
        assert here.attempts[attempt] in {*REFUSED, "EXDEV", "EROFS"}
        assert here.attempts["write scratch"] == "done"


async def test_no_device_memory_is_kept_after_the_end(gpu: Evaluator) -> None:
    before = used_bytes()
    holds = in_module("HELD = [torch.ones(1 << 28, device='cuda') for _ in range(4)]")
    leaks = in_forward("torch.ones(1 << 28, device='cuda').untyped_storage()._share_cuda_()")
    results = await asyncio.gather(gpu.evaluate(holds), gpu.evaluate(leaks))
    assert [result.verdict for result in results] == [Verdict.CORRECT] * 2, [result.reason for result in results]
    assert await given_back(before)


async def test_no_process_is_left_behind(gpu: Evaluator) -> None:
    assert gpu._crew is not None
    processes = await settled(gpu._crew)
    # Before the GPU is used in it, since nothing survives a fork afterwards.
    assert (await gpu.evaluate(in_module(DAEMON))).correct
    await settled(gpu._crew, processes)


async def test_no_memory_opens_that_was_not_given(gpu: Evaluator) -> None:
    evaluation = await gpu.evaluate(FORGES_HANDLES)
    assert evaluation.verdict is Verdict.CORRECT, evaluation.reason
    words = next(line.split() for line in evaluation.log.splitlines() if line.startswith("HANDLES"))
    handles, tried, opened, expected = map(int, words[1:])
    assert handles >= 1
    assert tried >= 384 * handles
    # Other bytes may mean the same memory, or what was lent to others; expected values must be in none of it.
    assert expected < 500, f"{opened} of {tried} forged handles open memory with expected values"


async def test_the_sandbox_costs_no_verdict(gpu: Evaluator) -> None:
    async with Evaluator(TASK, replace(SETTINGS, sandbox="off")) as judge:
        assert (await judge.evaluate(scale_candidate())).correct
    assert (await gpu.evaluate(scale_candidate())).correct
