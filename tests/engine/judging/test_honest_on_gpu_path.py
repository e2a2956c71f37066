"""The honest stage as a GPU has it, in real processes on a stand-in for one: what needs no kernel to be seen."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import torch

from engine.judging.evaluator import Evaluator
from engine.judging.settings import JudgeSettings
from engine.judging.workers.exchange import MARGIN, CudaArena, lay_out
from engine.records import MeasurementKind, Verdict
from tests.engine.judging.conftest import SCALE_TASK, make_task
from tests.engine.judging.stand_in_gpu.sitecustomize import SWITCH

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = JudgeSettings(seed=20240601, sandbox="off", baselines=("eager",), second_opinion=False, timeout_s=60.0)
TASK = make_task(SCALE_TASK.replace("4096, 1024", "64, 96"))
CANDIDATE = """
import os
import torch
from torch import nn

CALLS = []
ANSWERS = {}


class ModelNew(nn.Module):
    def __init__(self, factor, columns):
        super().__init__()
        self.factor = factor
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        CALLS.append(1)
        y = torch.empty_like(x)
        y.copy_(x * self.factor + self.bias)
        return y
"""


def candidate(*lines: str) -> str:
    """The candidate with other lines in place of those that make its answer."""
    before = CANDIDATE.split("        y = torch.empty_like(x)\n")[0]
    body = lines or ("y = torch.empty_like(x)", "y.copy_(x * self.factor + self.bias)", "return y")
    return before + "".join(f"        {line}\n" for line in body)


@pytest.fixture(scope="module")
def stand_in_gpu() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, f"stand-in-honest-{os.getpid()}")
        patch.setenv("PYTHONPATH", str(Path(__file__).parent / "stand_in_gpu"))
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judge(stand_in_gpu: object) -> AsyncIterator[Evaluator]:
    async with Evaluator(TASK, SETTINGS) as evaluator:
        assert (await evaluator.open()).kind is MeasurementKind.MEASURED
        yield evaluator


ANSWER = "x * self.factor + self.bias"


@pytest.mark.parametrize(
    ("lines", "labels"),
    [
        ((), set()),
        ((f"return {ANSWER}",), set()),
        (
            (
                "if getattr(self, 'y', None) is None or self.y.shape != x.shape: self.y = torch.empty_like(x)",
                f"self.y.copy_({ANSWER})",
                "return self.y",
            ),
            {"aliased_output"},
        ),
        ((f"return ({ANSWER}) * (1 + torch.rand_like(x) * 1e-7)",), {"nondeterministic"}),
        (("assert x.shape[0] == 64", f"return {ANSWER}"), {"shape_specialised"}),
        # Whoever ends its process when asked for other sizes is asked nothing more.
        (("if x.shape[0] != 64: os._exit(3)", f"return {ANSWER}"), set()),
    ],
    ids=["fresh memory", "no memory of its own", "one buffer", "noise", "one size", "ends at another size"],
)
async def test_right_answers_get_their_labels(judge: Evaluator, lines: tuple[str, ...], labels: set[str]) -> None:
    evaluation = await judge.evaluate(candidate(*lines))
    assert evaluation.verdict is Verdict.CORRECT, evaluation.reason
    # There is no Triton on a stand-in.
    assert set(evaluation.labels) == labels | {"no_triton"}
    assert evaluation.time_us is not None


@pytest.mark.parametrize(
    ("lines", "verdict", "reason"),
    [
        (("y = torch.empty_like(x)", f"y[:-1] = ({ANSWER})[:-1]", "return y"), Verdict.INCORRECT, "wrong values"),
        (
            (
                "y = torch.empty_like(x)",
                f"y.copy_({ANSWER})",
                "y.as_strided((3,), (1,), y.storage_offset() + y.numel()).fill_(2.0)",
                "return y",
            ),
            Verdict.RUNTIME_ERROR,
            "it writes 12 bytes behind a tensor",
        ),
        (
            (
                "y = torch.zeros_like(x)",
                f"y += {ANSWER}",
                "y.as_strided((1,), (1,), y.storage_offset() - 1).fill_(2.0)",
                "return y",
            ),
            Verdict.RUNTIME_ERROR,
            "bytes before a tensor",
        ),
        ((f"return {ANSWER} if len(CALLS) < 60 else x.clone()",), Verdict.INCORRECT, "a timed call"),
        (
            (f"return ANSWERS.setdefault(x.data_ptr(), {ANSWER}).clone()",),
            Verdict.INCORRECT,
            "a few values exchanged",
        ),
    ],
    ids=["unwritten", "behind", "before", "right for sixty calls", "kept by address"],
)
async def test_what_is_not_right_in_every_respect_is_refused(
    judge: Evaluator, lines: tuple[str, ...], verdict: Verdict, reason: str
) -> None:
    evaluation = await judge.evaluate(candidate(*lines))
    assert evaluation.verdict is verdict, evaluation.reason
    assert reason in evaluation.reason
    assert evaluation.time_us is None


async def test_what_is_written_around_inputs_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    tensors = [torch.randn(5, 7), torch.arange(3)]
    slots, size = lay_out(tensors, MARGIN)
    # An arena as it is on a GPU, in the host's memory.
    arena = CudaArena.__new__(CudaArena)
    arena.slots, arena.size, arena.margin, arena._pattern = slots, size, MARGIN, 0
    arena._memory = torch.empty(size, dtype=torch.uint8)
    patterns = set()
    for _ in range(2):
        arena.write(tensors)
        patterns.add(int(arena._memory[0]))
        assert all(map(torch.equal, arena.read(), tensors))
        assert not arena.overrun()
        for place in (slots[0].offset - 1, slots[0].offset + slots[0].bytes, slots[1].offset + slots[1].bytes):
            kept = int(arena._memory[place])
            arena._memory[place] = 7
            assert arena.overrun()
            arena._memory[place] = kept
        arena._memory[slots[0].offset] = 7
        assert not arena.overrun()
    assert len(patterns) == 2
