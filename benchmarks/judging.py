"""How quick the judge is: from a cold start to the first verdict, and verdicts a minute after that.

Without a GPU verdicts come from the interpreter and modelled time; with one, from the GPU, and the
table of baselines is printed as well. Usage: python benchmarks/judging.py [--device cpu] [--task softmax] [FILE...]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from pathlib import Path

from engine.judging.evaluator import Evaluator
from engine.judging.report import evaluation_json, summary
from engine.judging.settings import JudgeSettings
from engine.tasks.catalogue import find_task

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


async def measure(task: str, device: str, sources: list[str], at_once: int, count: int) -> None:
    started = time.monotonic()
    async with Evaluator(find_task(task), JudgeSettings(device=device, seed=7)) as judge:
        facts = await judge.open()
        print(f"{facts.device}  {dict(facts.toolchain)}  open {time.monotonic() - started:.1f} s")
        for case in facts.cases:
            print(f"{case.name}: {', '.join(map(str, case.inputs))}  {dict(case.baselines)}  bound {case.bound_us}")
        for note in facts.notes:
            print(f"note: {note}")
        evaluation = await judge.evaluate(sources[0])
        print(f"first verdict {time.monotonic() - started:.1f} s after the start: {summary(evaluation)}")
        print(json.dumps(evaluation_json(evaluation, task), indent=1) if evaluation.correct else evaluation.log)
        for source in sources[1:]:
            print(summary(await judge.evaluate(source)))
        gate = asyncio.Semaphore(at_once)

        async def one(number: int) -> None:
            async with gate:
                await judge.evaluate(sources[number % len(sources)])

        started = time.monotonic()
        await asyncio.gather(*(one(number) for number in range(count)))
        print(f"{60 * count / (time.monotonic() - started):.0f} verdicts a minute, {at_once} at once")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--task", default="softmax")
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("files", nargs="*", type=Path)
    arguments = parser.parse_args()
    sources = [path.read_text() for path in arguments.files] or [SOFTMAX]
    asyncio.run(measure(arguments.task, arguments.device, sources, arguments.at_once, arguments.count))


if __name__ == "__main__":
    main()
