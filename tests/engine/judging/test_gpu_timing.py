"""On a GPU: the timing protocol with what only hardware has: graphs, caches, Triton's autotuner, clocks, neighbours."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from engine.judging.confirmation import Bar
from engine.judging.evaluator import Evaluator
from engine.judging.settings import JudgeSettings
from engine.judging.wire import Message
from engine.records import BaselineKernel, Evaluation, Measurement, Verdict
from tests.engine.judging.conftest import SCALE_TASK, make_task, scale_candidate
from tests.engine.judging.test_verdicts import MATMUL_TASK

pytestmark = [pytest.mark.gpu, pytest.mark.asyncio(loop_scope="module")]

SETTINGS = JudgeSettings(
    device="cuda:0", seed=20240601, timeout_s=120.0, baselines=("eager", "compile"), second_opinion=False
)
ANYTHING_GOES = Bar(allow=frozenset({"no_triton"}))

PLAIN = scale_candidate(("        y = torch.empty_like(x)\n", "        return x * self.factor + self.bias\n"))
"""What the reference does, as a candidate."""

IN_PLACE_TASK = """
import torch
from torch import nn

ROWS, COLUMNS = 4096, 1024


class Model(nn.Module):
    def forward(self, x, total):
        total.add_(x)
        return torch.relu(total)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS)]
"""

IN_PLACE_CANDIDATE = """
import torch
import triton
import triton.language as tl
from torch import nn

CALLS, FIRST = 0, None


@triton.jit
def add_kernel(x_ptr, total_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    total = tl.load(total_ptr + at, mask=mask) + tl.load(x_ptr + at, mask=mask)
    tl.store(total_ptr + at, total, mask=mask)
    tl.store(y_ptr + at, tl.maximum(total, 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, total):
        global CALLS, FIRST
        CALLS += 1
        FIRST = FIRST or x.data_ptr()
        y = torch.empty_like(x)
        add_kernel[(triton.cdiv(x.numel(), 1024),)](x, total, y, x.numel(), BLOCK=1024)
        return y
"""

CONFIGURATIONS = "[triton.Config({'BLOCK': 1024}, num_warps=warps) for warps in (1, 4, 8)]"
AUTOTUNED = scale_candidate(
    ("@triton.jit\n", f"@triton.autotune({CONFIGURATIONS}, key=['columns'])\n@triton.jit\n")
).replace(", BLOCK=triton.next_power_of_2(x.shape[1]))", ")\n        print('TRIED', len(scale_kernel.configs_timings))")

BUSY = """
import os, sys, torch
if os.fork():
    os._exit(0)
os.setsid()
print(os.getpid(), flush=True)
x = torch.randn(8192, 8192, device="cuda")
while True:
    x @ x
    torch.cuda.synchronize()
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gpu() -> AsyncIterator[Evaluator]:
    own = BaselineKernel("mine.py", scale_candidate())
    async with Evaluator(make_task(SCALE_TASK), SETTINGS, [own]) as evaluator:
        yield evaluator


def measured(evaluation: Evaluation) -> Measurement:
    assert evaluation.verdict is Verdict.CORRECT, evaluation.reason
    measurement = evaluation.cases[0].measurement
    assert measurement is not None
    return measurement


async def test_nothing_is_faster_than_itself(gpu: Evaluator) -> None:
    for _ in range(3):
        plain = await gpu.evaluate(PLAIN, bar=ANYTHING_GOES)
        assert plain.standing["eager"] == "same", (plain.speedup, plain.speedup_ci95, measured(plain).detail)
        own = await gpu.evaluate(scale_candidate(), bar=ANYTHING_GOES)
        assert own.standing["mine.py"] == "same", (own.speedup, own.speedup_ci95, measured(own).detail)
        assert own.standing["eager"] == "faster"


async def test_three_fresh_processes_agree_on_a_winner(gpu: Evaluator) -> None:
    evaluation = await gpu.evaluate(scale_candidate(), bar=Bar())
    detail = measured(evaluation).detail
    assert [session["rounds"] for session in detail["sessions"]] == [7, 7, 7]
    assert "unstable" not in evaluation.labels, evaluation.reason
    far = await gpu.evaluate(scale_candidate(), bar=Bar(1.0, {"default": 1.0}))
    assert measured(far).detail["rounds"] == 3


async def test_every_block_says_what_the_device_went_through(gpu: Evaluator) -> None:
    detail = measured(await gpu.evaluate(scale_candidate())).detail
    assert len(detail["blocks"]) == 6
    for block in detail["blocks"]:
        assert block["sm_mhz"] > 100 and block["memory_mhz"] > 100
        assert 10 < block["temperature_c"] < 110
        assert block["power_w"] > 10 and block["energy_j"] >= 0
    assert set(detail["baseline_peak_bytes"]) == {"eager", "compile", "mine.py"}
    # One output of 16 MiB; eager holds an intermediate result beside it.
    assert 16 << 20 <= detail["baseline_peak_bytes"]["mine.py"] < detail["baseline_peak_bytes"]["eager"] < 200 << 20
    assert (await gpu.open()).toolchain["driver"]


async def test_inputs_that_a_call_changes_are_restored_for_the_next() -> None:
    async with Evaluator(make_task(IN_PLACE_TASK, name="in place"), SETTINGS) as judge:
        honest = await judge.evaluate(IN_PLACE_CANDIDATE, bar=Bar())
        unchanged = IN_PLACE_CANDIDATE.replace(
            "add_kernel[",
            "total = total if x.data_ptr() == FIRST or CALLS % 10 == 0 else total.clone()\n        add_kernel[",
        )
        lazy = await judge.evaluate(unchanged)
    assert honest.verdict is Verdict.CORRECT, honest.reason
    assert honest.standing["eager"] == "faster"
    assert lazy.verdict is Verdict.INCORRECT
    assert lazy.stage == "after"


@pytest.mark.parametrize(("mode", "cache"), [("graph", "cold"), ("launch", "warm")])
async def test_modes_and_caches(mode: str, cache: str) -> None:
    settings = replace(SETTINGS, time_mode=mode, cache=cache, baselines=("eager",))
    async with Evaluator(make_task(IN_PLACE_TASK, name="in place"), settings) as judge:
        evaluation = await judge.evaluate(IN_PLACE_CANDIDATE)
    assert (measured(evaluation).mode, measured(evaluation).cache) == (mode, cache)
    assert evaluation.speedup["eager"] > 1.0


async def test_what_cannot_be_captured_is_said_plainly() -> None:
    looks = scale_candidate(
        ("        y = torch.empty_like(x)\n", "        y = torch.empty_like(x)\n        x.sum().item()\n")
    )
    settings = replace(SETTINGS, time_mode="graph", baselines=("eager",))
    async with Evaluator(make_task(SCALE_TASK), settings) as judge:
        evaluation = await judge.evaluate(looks)
        good = await judge.evaluate(scale_candidate())
    assert evaluation.verdict is Verdict.RUNTIME_ERROR
    assert "cannot be captured as a CUDA graph, which --time graph asks for" in evaluation.reason
    assert good.verdict is Verdict.CORRECT, good.reason


async def test_what_autotuning_chose_is_kept_to_in_fresh_processes(gpu: Evaluator) -> None:
    heard: list[str] = []
    evaluation = await gpu.evaluate(AUTOTUNED, bar=Bar(), on_log=heard.append)
    detail = measured(evaluation).detail
    (choice,) = detail["tuned"]
    assert (choice["kernel"], choice["of"]) == ("scale_kernel", 3)
    assert choice["config"]["num_warps"] in (1, 4, 8)
    lines = "".join(heard).splitlines()
    assert {line for line in lines if line.startswith("TRIED")} == {"TRIED 3", "TRIED 1"}
    assert lines.index("TRIED 3") < lines.index("TRIED 1")


async def test_what_an_earlier_run_found_saves_compiling() -> None:
    kept: list[Message] = []

    def known(fingerprint: Mapping[str, str]) -> list[Message]:
        return kept

    async with Evaluator(make_task(SCALE_TASK), SETTINGS) as first:
        (case,) = (await first.open()).cases
    kept += [{"case": 0, "tier": tier, **found} for tier, found in case.compared.items()]
    async with Evaluator(make_task(SCALE_TASK), SETTINGS, known=known) as second:
        (again,) = (await second.open()).cases
        assert second._crew is not None
        assert set(second._crew._baselines) == {"eager", "again"}
    assert again.compared["exact"]["relative"] == case.compared["exact"]["relative"]
    assert again.baselines["eager"] == pytest.approx(case.baselines["eager"], rel=0.1)


async def test_the_bound_depends_on_the_precision() -> None:
    task = make_task(MATMUL_TASK.replace("N = 256", "N = 4096"), name="matmul")
    async with Evaluator(task, replace(SETTINGS, baselines=("eager",))) as judge:
        (case,) = (await judge.open()).cases
    assert case.bounds["bf16"] == case.bounds["reduced"] < case.bounds["exact"] < case.baselines["eager"]
    assert case.bound_by["exact"] == "compute"


async def test_timing_waits_for_somebody_else_who_computes(gpu: Evaluator) -> None:
    await gpu.open()
    assert gpu._crew is not None
    if gpu._crew.neighbours is None:
        pytest.skip("the driver does not tell processes apart here")
    told: asyncio.Queue[str] = asyncio.Queue()
    busy: Any = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True)
    pid = int(busy.stdout.readline())
    try:
        async with asyncio.timeout(60):
            while not gpu._crew.neighbours.active():
                await asyncio.sleep(0.2)
        work = asyncio.create_task(gpu.evaluate(scale_candidate(), on_waiting=told.put_nowait))
        assert (await told.get()).startswith(f"process {pid} (")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    evaluation = await work
    assert evaluation.verdict is Verdict.CORRECT, evaluation.reason
    assert await told.get() == ""
