"""On a GPU: measured time, equal precision, faults that stay with their candidate, memory that gives nothing away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from engine.judging.evaluator import Evaluator
from engine.judging.settings import JudgeSettings
from engine.records import MeasurementKind, Verdict
from tests.engine.judging.conftest import SCALE_TASK, make_task, scale_candidate
from tests.engine.judging.test_bad_candidates import in_forward
from tests.engine.judging.test_verdicts import MATMUL_CANDIDATE, MATMUL_TASK

pytestmark = [pytest.mark.gpu, pytest.mark.asyncio(loop_scope="module")]

LOOKS_AROUND = scale_candidate(
    (
        "        y = torch.empty_like(x)\n",
        """        import ctypes

        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        driver = ctypes.CDLL("libcuda.so.1")
        address = ctypes.c_uint64(x.data_ptr())
        assert driver.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), address) == 0

        class Segment:
            __cuda_array_interface__ = dict(
                shape=(size.value // 4,), typestr="<f4", data=(base.value, False), version=3
            )

        segment = torch.as_tensor(Segment(), device="cuda")
        expected = (x * self.factor + self.bias).flatten()[:1000]
        print("FOUND", int(torch.isin(expected, segment).sum()), int(torch.isin(x.flatten()[:1000], segment).sum()))
        y = torch.empty_like(x)
""",
    )
)
"""Reads the whole allocation that its input lies in."""

FAR_AWAY = scale_candidate(("x_ptr + row * columns + column, mask=mask", "x_ptr + (1 << 42) + column"))

SETTINGS = JudgeSettings(device="cuda:0", seed=20240601, timeout_s=60.0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gpu() -> AsyncIterator[Evaluator]:
    async with Evaluator(make_task(SCALE_TASK), SETTINGS) as evaluator:
        yield evaluator


async def test_the_facts_name_the_device_and_every_baseline(gpu: Evaluator) -> None:
    facts = await gpu.open()
    assert facts.kind is MeasurementKind.MEASURED
    assert "NVIDIA" in facts.device
    assert facts.toolchain["arch"].startswith("sm_")
    assert set(facts.cases[0].baselines) == {"eager", "compile", "compile_max"}, facts.notes
    assert facts.cases[0].bound_us is not None
    assert facts.cases[0].bound_us < facts.cases[0].baselines["eager"]


async def test_an_honest_candidate_is_measured_against_all_of_them(gpu: Evaluator) -> None:
    evaluation = await gpu.evaluate(scale_candidate())
    assert evaluation.verdict is Verdict.CORRECT, evaluation.reason
    (case,) = evaluation.cases
    assert case.measurement is not None
    assert case.measurement.kind is MeasurementKind.MEASURED
    low, high = case.measurement.ci95_us
    assert low <= case.measurement.time_us <= high
    assert set(evaluation.speedup) == {"eager", "compile", "compile_max", "eager_strict"}
    # Two elementwise kernels of PyTorch become one.
    assert evaluation.speedup["eager"] > 1.0
    assert case.peak_bytes
    (kernel,) = evaluation.static
    assert (kernel.kernel, kernel.arch) == ("scale_kernel", (await gpu.open()).toolchain["arch"])
    assert kernel.registers > 0


async def test_two_candidates_at_once_are_both_measured(gpu: Evaluator) -> None:
    results = await asyncio.gather(*(gpu.evaluate(scale_candidate()) for _ in range(3)))
    assert [result.verdict for result in results] == [Verdict.CORRECT] * 3
    times = [result.time_us for result in results if result.time_us is not None]
    assert max(times) < 1.3 * min(times)


@pytest.mark.parametrize(
    ("source", "verdict"),
    [
        (FAR_AWAY, Verdict.RUNTIME_ERROR),
        (in_forward("torch.empty(1 << 42, device='cuda')"), Verdict.OUT_OF_MEMORY),
        (in_forward("x.add_(1)"), Verdict.INCORRECT),
        (in_forward("return x"), Verdict.INCORRECT),
        (in_forward("import ctypes; ctypes.string_at(0)"), Verdict.RUNTIME_ERROR),
        (scale_candidate(("BLOCK=triton", "num_warps=64, BLOCK=triton")), Verdict.COMPILE_ERROR),
    ],
    ids=["illegal address", "memory", "input changed", "input returned", "segfault", "too many warps"],
)
async def test_a_fault_stays_with_its_candidate(gpu: Evaluator, source: str, verdict: Verdict) -> None:
    bad, good = await asyncio.gather(gpu.evaluate(source), gpu.evaluate(scale_candidate()))
    assert bad.verdict is verdict, bad.reason
    assert "\n" not in bad.reason
    assert good.verdict is Verdict.CORRECT, good.reason


async def test_an_endless_kernel_ends_at_the_deadline(gpu: Evaluator) -> None:
    loop = (
        "    turns = columns\n"
        "    while turns > 0:\n"
        "        tl.debug_barrier()\n"
        "        turns += tl.load(bias_ptr + row % 2, volatile=True).to(tl.int32) * 0\n"
        "    x = tl.load"
    )
    endless = scale_candidate(("    x = tl.load", loop))
    async with Evaluator(make_task(SCALE_TASK), replace(SETTINGS, timeout_s=8.0)) as judge:
        bad = await judge.evaluate(endless)
        good = await judge.evaluate(scale_candidate())
    assert bad.verdict is Verdict.TIMEOUT, bad.reason
    assert good.verdict is Verdict.CORRECT, good.reason


async def test_the_memory_behind_an_input_holds_no_expected_value(gpu: Evaluator) -> None:
    """CUDA IPC opens whole allocations, so nothing but inputs may lie in one."""
    evaluation = await gpu.evaluate(LOOKS_AROUND)
    assert evaluation.verdict is Verdict.CORRECT, evaluation.reason
    found = [line.split() for line in evaluation.log.splitlines() if line.startswith("FOUND")]
    assert found
    # A few of four million random floats may coincide; a thousand expected ones may not be there.
    assert all(int(words[1]) < 500 for words in found), found
    assert all(int(words[2]) == 1000 for words in found), found


async def test_tf32_is_compared_with_tf32(gpu: Evaluator) -> None:
    task = make_task(MATMUL_TASK.replace("N = 256", "N = 2048"), name="matmul")
    ieee = MATMUL_CANDIDATE.replace("tl.dot(x, y)", "tl.dot(x, y, input_precision='ieee')")
    async with Evaluator(task, SETTINGS) as judge:
        exact, reduced = await judge.evaluate(ieee), await judge.evaluate(MATMUL_CANDIDATE)
    async with Evaluator(task, replace(SETTINGS, numerics="strict")) as judge:
        refused = await judge.evaluate(MATMUL_CANDIDATE)
    assert exact.verdict is reduced.verdict is Verdict.CORRECT, (exact.reason, reduced.reason)
    assert exact.numerics is not None and exact.numerics.tier == "exact"
    assert reduced.numerics is not None and reduced.numerics.tier == "reduced"
    assert "reduced_precision" in reduced.labels
    # Against TF32 the same time is worth less than against full float32.
    assert reduced.speedup["eager"] < reduced.speedup["eager_strict"]
    assert exact.speedup["eager"] == pytest.approx(exact.speedup["eager_strict"], rel=0.2)
    assert refused.verdict is Verdict.INCORRECT
    assert "--numerics strict" in refused.reason


async def test_flags_that_a_candidate_flips_do_not_reach_the_reference(gpu: Evaluator) -> None:
    before = await gpu.evaluate(scale_candidate())
    flips = in_forward("torch.backends.cuda.matmul.allow_tf32 = True; torch.set_default_dtype(torch.float64)")
    await gpu.evaluate(flips)
    after = await gpu.evaluate(scale_candidate())
    assert after.speedup["eager"] == pytest.approx(before.speedup["eager"], rel=0.2)


async def test_calls_can_be_replayed_as_a_graph_and_with_a_warm_cache() -> None:
    async with Evaluator(make_task(SCALE_TASK), replace(SETTINGS, time_mode="graph", cache="warm")) as judge:
        evaluation = await judge.evaluate(scale_candidate())
    assert evaluation.verdict is Verdict.CORRECT, evaluation.reason
    assert evaluation.cases[0].measurement is not None
    assert (evaluation.cases[0].measurement.mode, evaluation.cases[0].measurement.cache) == ("graph", "warm")


async def test_what_compiles_to_known_code_is_not_timed_again(gpu: Evaluator) -> None:
    first = await gpu.evaluate(scale_candidate())
    assert first.fingerprint is not None
    known = {first.fingerprint}
    renamed = await gpu.evaluate(scale_candidate(("scale_kernel", "renamed_kernel")), known=known)
    assert renamed.correct, renamed.reason
    assert (renamed.fingerprint, renamed.time_us) == (first.fingerprint, None)
    wider = await gpu.evaluate(scale_candidate(("BLOCK=triton", "num_warps=8, BLOCK=triton")), known=known)
    assert wider.fingerprint not in known
    assert wider.time_us is not None


@pytest.mark.parametrize(
    ("columns", "verdict", "labels"),
    [(1000, Verdict.RUNTIME_ERROR, ()), (1024, Verdict.CORRECT, ("shape_specialised",))],
)
async def test_the_interpreter_sees_what_reads_outside_its_tensors(
    columns: int, verdict: Verdict, labels: tuple[str, ...]
) -> None:
    """A mask that is missing matters where columns are no power of two, at the large sizes too."""
    task = make_task(SCALE_TASK.replace("4096, 1024", f"4096, {columns}"), {"ROWS": 7, "COLUMNS": 50})
    unmasked = scale_candidate(("x_ptr + row * columns + column, mask=mask", "x_ptr + row * columns + column"))
    async with Evaluator(task, replace(SETTINGS, baselines=("eager",))) as judge:
        careless = await judge.evaluate(unmasked)
        careful = await judge.evaluate(scale_candidate())
    assert (careless.verdict, careless.labels) == (verdict, labels), careless.reason
    assert (careful.verdict, careful.labels) == (Verdict.CORRECT, ()), careful.reason
    assert [check.name for check in careful.checks][-1] == "second opinion of the interpreter"
