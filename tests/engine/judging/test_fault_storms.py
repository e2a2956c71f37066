"""Storms of faults: each kind many times in a row among honest candidates, and nothing is left of any.

Nothing hangs, the honest ones are judged as ever by the same processes, and memory, files and processes are where
they were before.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import pytest_asyncio

from engine.judging.crew import Crew
from engine.judging.evaluator import Evaluator
from engine.judging.sandbox import PROCESS_LIMIT
from engine.judging.settings import JudgeSettings
from engine.records import Evaluation, Verdict
from tests.engine.judging.conftest import SCALE_TASK, make_task, scale_candidate
from tests.engine.judging.test_bad_candidates import in_forward, in_module
from tests.engine.judging.test_sandbox import descendants_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

TIMES, AT_ONCE = 20, 4
GROWTH = 1.25
"""By what factor a judge's memory may grow over storms; a leak of one candidate's tensors would show twenty times."""

ENDLESS_KERNEL = scale_candidate(("    bias = tl.load", "    while row >= 0:\n        row = row\n    bias = tl.load"))
ENDLESS_COMPILE = scale_candidate(
    (
        "    bias = tl.load",
        "    if columns < 0:\n"
        "        for i in tl.static_range(1 << 22):\n"
        "            x = x * 1.5 + i\n"
        "    bias = tl.load",
    )
)
DEVICE_ASSERT = scale_candidate(
    ("    bias = tl.load", "    tl.device_assert(columns < 0, 'too many columns')\n    bias = tl.load")
).replace("@triton.jit", "@triton.jit(debug=True)")
OUTSIDE = scale_candidate(("x_ptr + row * columns + column, mask=mask", "x_ptr + (1 << 42) + column"))

STORMS = {
    "segmentation fault at import": (in_module("import ctypes; ctypes.string_at(0)"), {Verdict.RUNTIME_ERROR}),
    "segmentation fault in a call": (in_forward("import ctypes; ctypes.string_at(0)"), {Verdict.RUNTIME_ERROR}),
    "abort": (in_forward("import os; os.abort()"), {Verdict.RUNTIME_ERROR}),
    "exit at import": (in_module("import os; os._exit(0)"), {Verdict.RUNTIME_ERROR}),
    "exit in a call": (in_forward("import sys; sys.exit(5)"), {Verdict.RUNTIME_ERROR}),
    "recursion": (in_forward("return self.forward(x)"), {Verdict.RUNTIME_ERROR}),
    "host memory": (in_forward("bytearray(1 << 40)"), {Verdict.OUT_OF_MEMORY}),
    "host memory bit by bit": (
        in_forward("[torch.empty(1 << 28) for _ in range(40)]"),
        {Verdict.OUT_OF_MEMORY},
    ),
    "endless import": (in_module("while True: pass"), {Verdict.TIMEOUT}),
    "endless kernel": (ENDLESS_KERNEL, {Verdict.TIMEOUT}),
    "endless compilation": (ENDLESS_COMPILE, {Verdict.TIMEOUT}),
    "outside every tensor": (OUTSIDE, {Verdict.RUNTIME_ERROR}),
    "children that stay": (
        in_module("import os, signal\nif os.fork() == 0:\n    os.setsid()\n    signal.pause()"),
        {Verdict.CORRECT},
    ),
}
FORK_BOMB = in_module("import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass")


@dataclass(frozen=True)
class Held:
    """What a crew's processes hold on to: resident bytes and open files."""

    memory: dict[str, int]
    descriptors: dict[str, int]


def held(crew: Crew) -> Held:
    pids = {worker.name: worker.process.pid for worker in crew._workers}
    pages = {name: int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for name, pid in pids.items()}
    return Held(
        {name: count * resource.getpagesize() for name, count in pages.items()},
        {name: len(os.listdir(f"/proc/{pid}/fd")) for name, pid in pids.items()},
    )


async def settled(crew: Crew, expected: set[int] | None = None) -> set[int]:
    """Waits until no candidate is left in the crew's folder or beneath its launcher; the processes that are."""
    assert crew._launcher._process is not None
    launcher, deadline = crew._launcher._process.pid, time.monotonic() + 20
    # A process namespace has a process number one of its own.
    most = len(crew._workers) + len(crew._baselines) + 1
    while time.monotonic() < deadline:
        processes = await asyncio.to_thread(descendants_of, launcher)
        files = [entry.name for entry in crew.folder.iterdir() if entry.name.startswith("candidate-")]
        if not files and len(processes) <= most and (expected is None or processes == expected):
            return processes
    raise AssertionError(f"left behind: {files}, {processes - (expected or set())}")


async def storm(judge: Evaluator, source: str) -> tuple[list[Evaluation], list[Evaluation]]:
    """Judges the bad candidate many times, a few at once, an honest one among each few; the evaluations of both."""
    bad: list[Evaluation] = []
    good: list[Evaluation] = []
    for _ in range(TIMES // AT_ONCE):
        *worse, better = await asyncio.gather(
            *(judge.evaluate(source) for _ in range(AT_ONCE)), judge.evaluate(scale_candidate())
        )
        bad += worse
        good.append(better)
    return bad, good


async def weather(judge: Evaluator, source: str, verdicts: set[Verdict]) -> None:
    """One storm, and that nothing is different afterwards."""
    crew = judge._crew
    assert crew is not None
    processes = await settled(crew)
    before = held(crew)
    bad, good = await storm(judge, source)
    assert {evaluation.verdict for evaluation in bad} <= verdicts, [evaluation.reason for evaluation in bad]
    assert all("\n" not in evaluation.reason for evaluation in bad)
    assert [evaluation.verdict for evaluation in good] == [Verdict.CORRECT] * len(good), [g.reason for g in good]
    assert all(evaluation.labels == () for evaluation in good)
    # The same processes have judged all of them.
    assert judge._crew is crew and not crew.broken.done()
    await settled(crew, processes)
    after = held(crew)
    assert after.descriptors == before.descriptors
    for name, size in after.memory.items():
        assert size < GROWTH * before.memory[name], f"the {name} grows: {before.memory[name]} to {size} bytes"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shelter(cpu_settings: JudgeSettings) -> AsyncIterator[Evaluator]:
    settings = replace(cpu_settings, timeout_s=6.0)
    async with Evaluator(make_task(SCALE_TASK, {"ROWS": 7, "COLUMNS": 50}), settings) as judge:
        # The first ones make what is kept for all.
        await asyncio.gather(*(judge.evaluate(scale_candidate()) for _ in range(AT_ONCE + 1)))
        yield judge


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", STORMS)
async def test_a_storm_leaves_neighbours_and_machine_as_they_were(shelter: Evaluator, kind: str) -> None:
    await weather(shelter, *STORMS[kind])


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_fork_bombs_end_with_their_candidates(shelter: Evaluator) -> None:
    assert shelter._crew is not None
    if PROCESS_LIMIT not in shelter._crew.sandbox.layers:
        pytest.skip("this kernel does not bound the processes of a candidate")
    await weather(shelter, FORK_BOMB, {Verdict.TIMEOUT})
