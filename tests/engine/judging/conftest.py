"""Tasks and candidates for the judge's tests, and one warm judge for those that share a task."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio

from engine.judging.evaluator import Evaluator
from engine.judging.settings import JudgeSettings
from engine.records import Case, Task

SCALE_TASK = """
import torch
from torch import nn

ROWS, COLUMNS = 4096, 1024
SMALL = {"ROWS": 7, "COLUMNS": 50}


class Model(nn.Module):
    def __init__(self, factor, columns):
        super().__init__()
        self.factor = factor
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return x * self.factor + self.bias


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return [3.0, COLUMNS]
"""

SCALE_CANDIDATE = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def scale_kernel(x_ptr, bias_ptr, y_ptr, factor, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask)
    bias = tl.load(bias_ptr + column, mask=mask)
    tl.store(y_ptr + row * columns + column, x * factor + bias, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, factor, columns):
        super().__init__()
        self.factor = factor
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        y = torch.empty_like(x)
        scale_kernel[(x.shape[0],)](x, self.bias, y, self.factor, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
"""


def make_task(source: str, small: Mapping[str, object] | None = None, name: str = "scale") -> Task:
    return Task(name, "test", "kernelbench", f"{name}.py", source, (Case(small_overrides=small or {}),))


def scale_candidate(change: tuple[str, str] = ("", "")) -> str:
    assert change[0] in SCALE_CANDIDATE
    return SCALE_CANDIDATE.replace(*change)


@pytest.fixture(scope="session")
def cpu_settings() -> JudgeSettings:
    return JudgeSettings(device="cpu", seed=1234567, timeout_s=20.0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judge(cpu_settings: JudgeSettings) -> AsyncIterator[Evaluator]:
    """A warm judge for the scale task, shared by a module's tests."""
    task = make_task(SCALE_TASK, {"ROWS": 7, "COLUMNS": 50})
    async with Evaluator(task, cpu_settings) as evaluator:
        yield evaluator


def children_of(parent: int) -> list[int]:
    """The living processes whose parent is `parent`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == parent and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def command_lines(pids: list[int]) -> list[str]:
    return [Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in pids]
