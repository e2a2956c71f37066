"""How quick and how steady the judge is. Every figure is a ratio or a rate from this one run.

    python benchmarks/judging.py rate [--device cpu] [--task softmax]   verdicts a minute on small candidates
    python benchmarks/judging.py compare FOLDER                         against a fresh process per candidate (GPU)
    python benchmarks/judging.py sessions [--task softmax]              the same kernel in fresh sessions (GPU)
    python benchmarks/judging.py nursery                                from request to a process with CUDA (GPU)

FOLDER holds one folder per task: `task.py` and candidates beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from engine.judging.confirmation import Bar
from engine.judging.evaluator import Evaluator
from engine.judging.report import summary
from engine.judging.settings import JudgeSettings
from engine.records import BaselineKernel, Evaluation, Verdict
from engine.tasks.catalogue import find_task

HARNESS = Path(__file__).with_name("fresh_process_harness.py")
TRIAL_CALLS = 100
"""Timed calls of the plain harness: the usual number, fewer than the judge makes."""

JUDGING = ("correct", "honest", "time", "after", "model", "end")
"""Stages in which the judge works; in those before, the candidate imports, compiles and tunes."""

SOFTMAX = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=-float("inf"))
    numerator = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row * columns + column, numerator / tl.sum(numerator, 0), mask=column < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=block, num_warps=8)
        return y
"""

READY = """
import time
import torch

torch.zeros(1, device="cuda")
torch.cuda.synchronize()
print("READY", time.monotonic(), flush=True)
"""


async def judged(judge: Evaluator, sources: list[str], at_once: int) -> tuple[list[Evaluation], float]:
    """Evaluations in order, and the seconds they took together."""
    gate = asyncio.Semaphore(at_once)

    async def one(source: str) -> Evaluation:
        async with gate:
            return await judge.evaluate(source)

    started = time.monotonic()
    found = await asyncio.gather(*map(one, sources))
    return list(found), time.monotonic() - started


async def rate(task: str, device: str, at_once: int, count: int) -> None:
    """Verdicts a minute on the same small candidate, from a judge that is open."""
    started = time.monotonic()
    async with Evaluator(find_task(task), JudgeSettings(device=device, seed=7)) as judge:
        facts = await judge.open()
        print(f"{facts.device}  {dict(facts.toolchain)}  open {time.monotonic() - started:.1f} s")
        first = await judge.evaluate(SOFTMAX)
        print(f"first verdict {time.monotonic() - started:.1f} s after the start: {summary(first)}")
        _, seconds = await judged(judge, [SOFTMAX] * count, at_once)
        print(f"{60 * count / seconds:.0f} verdicts a minute, {at_once} at once")


async def compare(folder: Path, at_once: int) -> None:
    """Real candidates, judged warm and by a fresh process each; the ratio of their rates."""
    rows = []
    opening = 0.0
    for task in sorted(path.parent for path in folder.glob("*/task.py")):
        paths = sorted(path for path in task.glob("*.py") if path.name != "task.py")
        started = time.monotonic()
        # Both sides compare with eager only.
        settings = JudgeSettings(device="cuda:0", seed=7, baselines=("eager",))
        async with Evaluator(find_task(str(task / "task.py")), settings) as judge:
            await judge.open()
            opened = time.monotonic() - started
            opening += opened
            found, seconds = await judged(judge, [path.read_text() for path in paths], at_once)
        print(f"{task.name}: open after {opened:.1f} s, {len(paths)} judged in {seconds:.1f} s", flush=True)
        for path, ours in zip(paths, found, strict=True):
            started = time.monotonic()
            answer = subprocess.run(
                [sys.executable, HARNESS, task / "task.py", path, str(TRIAL_CALLS)], capture_output=True, text=True
            )
            theirs = json.loads(answer.stdout.splitlines()[-1]) if answer.returncode == 0 else {"verdict": "crash"}
            rows.append((f"{task.name}/{path.stem}", ours, theirs, seconds / len(paths), time.monotonic() - started))
            print(f"{rows[-1][0]:24} {rows[-1][4]:5.1f} s {theirs['verdict']:9} | {summary(ours)[:110]}")
            print(f"{'':24} {ours.seconds:5.1f} s {dict(ours.stage_seconds)}", flush=True)
    mine, other = sum(row[3] for row in rows), sum(row[4] for row in rows)
    verdicts = {str(verdict): sum(row[1].verdict is verdict for row in rows) for verdict in Verdict}
    print(f"{len(rows)} candidates: {', '.join(f'{count} {name}' for name, count in verdicts.items() if count)}")
    print(f"fresh process {60 * len(rows) / other:.1f} a minute, {other / len(rows):.1f} s each")
    warm, cold = other / mine, other / (mine + opening)
    print(f"judge {60 * len(rows) / mine:.1f} a minute: {warm:.1f}x; with its start {cold:.1f}x")
    beyond = [sum(row[1].stage_seconds.get(stage, 0.0) for stage in JUDGING) for row in rows if row[1].correct]
    if beyond:
        print(f"seconds a correct candidate beyond its own compile time: median {statistics.median(beyond):.2f}")


async def sessions(task: str, count: int) -> None:
    """The same kernel in fresh sessions: how far its full-tempo time moves, and whether it ever beats itself."""
    times: list[float] = []
    words: list[str] = []
    for number in range(count):
        settings = JudgeSettings(device="cuda:0", seed=number, baselines=("eager",), second_opinion=False)
        async with Evaluator(find_task(task), settings, [BaselineKernel("itself", SOFTMAX)]) as judge:
            evaluation = await judge.evaluate(SOFTMAX, bar=Bar())
        assert evaluation.correct and evaluation.time_us is not None, evaluation.reason
        times.append(evaluation.time_us)
        words.append(evaluation.standing["itself"])
        print(f"session {number}: {summary(evaluation)}", flush=True)
    differences = [abs(one / other - 1) for i, one in enumerate(times) for other in times[:i]]
    print(f"{count} sessions: two of them differ by {statistics.quantiles(differences, n=10)[8]:.2%} at p90")
    print(f"against itself: {', '.join(f'{words.count(word)} {word}' for word in ('faster', 'same', 'slower'))}")


async def nursery(count: int) -> None:
    """Seconds from the request to a child that has used CUDA."""
    waits: list[float] = []
    async with Evaluator(find_task("softmax"), JudgeSettings(device="cuda:0", seed=7)) as judge:
        for _ in range(count):
            started = time.monotonic()
            log: list[str] = []
            await judge.evaluate(READY, on_log=log.append)
            ready = "".join(log).split("READY ")[1].split()[0]
            waits.append(float(ready) - started)
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", f"import triton\n{READY}"], check=True, capture_output=True)
    fresh = time.monotonic() - started
    middle = statistics.median(waits)
    print(f"request to CUDA-ready: median {middle:.2f} s, worst {max(waits):.2f} s of {count}; a fresh interpreter "
          f"{fresh:.2f} s, {fresh / middle:.1f}x")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("rate", "compare", "sessions", "nursery"))
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--task", default="softmax")
    parser.add_argument("--at-once", type=int)
    parser.add_argument("--count", type=int)
    options = parser.parse_args()
    if options.what == "rate":
        asyncio.run(rate(options.task, options.device, options.at_once or 2, options.count or 10))
    elif options.what == "compare":
        if options.folder is None:
            parser.error("compare needs the folder of tasks and candidates")
        asyncio.run(compare(options.folder, options.at_once or 12))
    elif options.what == "sessions":
        asyncio.run(sessions(options.task, options.count or 20))
    else:
        asyncio.run(nursery(options.count or 10))


if __name__ == "__main__":
    main()
