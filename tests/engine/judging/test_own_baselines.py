"""People's own kernels as baselines, and cases on which a best candidate may not be slower."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from engine.judging.evaluator import Evaluator
from engine.judging.report import evaluation_json, summary
from engine.judging.settings import JudgeSettings
from engine.records import BaselineKernel, Case, Task
from engine.tasks.catalogue import TaskError
from tests.engine.judging.conftest import SCALE_TASK, make_task, scale_candidate

pytestmark = pytest.mark.asyncio(loop_scope="module")

SMALL = {"ROWS": 7, "COLUMNS": 50}
TASK = Task(
    "scale",
    "test",
    "kernelbench",
    "scale.py",
    SCALE_TASK,
    (
        Case("tall", 3.0, {"ROWS": 16384, "COLUMNS": 1024}, SMALL),
        Case("long", 1.0, {"ROWS": 65536, "COLUMNS": 256}, SMALL),
    ),
)
MINE = scale_candidate(("y = torch.empty_like(x)\n", "y = torch.empty_like(x)\n        x = x.clone()\n"))
"""Copies its input first, so that each row moves twice."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judge(cpu_settings: JudgeSettings) -> AsyncIterator[Evaluator]:
    settings = replace(cpu_settings, no_regress=10.0)
    async with Evaluator(TASK, settings, [BaselineKernel("mine.py", MINE)]) as evaluator:
        yield evaluator


async def test_an_own_kernel_is_timed_as_a_candidate_is(judge: Evaluator) -> None:
    facts = await judge.open()
    assert facts.own == ("mine.py",)
    again = await judge.evaluate(MINE)
    assert again.speedup["mine.py"] == pytest.approx(1.0)
    assert again.standing["mine.py"] == "same"
    assert [case.baselines["mine.py"] for case in again.cases] == [
        case.measurement.time_us for case in again.cases if case.measurement
    ]


async def test_a_faster_candidate_is_faster_than_the_own_kernel(judge: Evaluator) -> None:
    evaluation = await judge.evaluate(scale_candidate())
    assert evaluation.speedup["mine.py"] > 1.3
    assert evaluation.standing["mine.py"] == "faster"
    assert "regression" not in evaluation.labels
    document = evaluation_json(evaluation, "scale")
    assert document["speedup"]["mine.py"] == evaluation.speedup["mine.py"]
    assert document["standing"]["mine.py"] == "faster"
    assert "x mine.py" in summary(evaluation)
    assert "of the bound (memory)" in summary(evaluation)
    assert document["cases"][0]["bound_by"] == "memory"


async def test_a_candidate_that_loses_on_one_case_cannot_be_best(judge: Evaluator) -> None:
    copies = "        x = x.clone().clone().clone() if len(x) == 65536 else x\n"
    loses = scale_candidate(("y = torch.empty_like(x)\n", f"y = torch.empty_like(x)\n{copies}"))
    evaluation = await judge.evaluate(loses)
    assert evaluation.correct
    # Better on the whole, since the other case weighs more.
    assert evaluation.speedup["mine.py"] > 1.0
    assert "regression" in evaluation.labels
    assert evaluation.reason.startswith("case long is ")
    assert evaluation.reason.endswith("% slower than mine.py, and --no-regress allows 10%")
    assert not evaluation.eligible()
    assert evaluation.eligible(frozenset({"regression"}))


async def test_an_own_kernel_that_is_wrong_is_refused_in_one_sentence(cpu_settings: JudgeSettings) -> None:
    wrong = BaselineKernel("wrong.py", scale_candidate(("x * factor + bias", "x * factor")))
    task = make_task(SCALE_TASK, SMALL)
    with pytest.raises(TaskError, match=r"the baseline wrong.py is not correct for the task scale: wrong values"):
        await Evaluator(task, cpu_settings, [wrong]).open()
