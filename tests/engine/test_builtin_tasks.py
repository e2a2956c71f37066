"""Every built-in task from end to end: lowered, judged correct, and modelled."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from engine.judging.evaluator import Evaluator
from engine.judging.settings import JudgeSettings
from engine.lowering.client import LoweringClient
from engine.records import Task, Verdict
from engine.tasks.catalogue import builtin_tasks


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lowering() -> AsyncIterator[LoweringClient]:
    async with LoweringClient() as client:
        yield client


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("task", builtin_tasks(), ids=lambda task: task.name)
async def test_what_the_compiler_makes_of_it_is_judged_correct_and_has_a_time(
    task: Task, lowering: LoweringClient
) -> None:
    lowered = await lowering.open(task, "sm_90")
    names = [structure.name for structure in lowered.structures]
    chosen = [names[0], next(name for name in names if not name.startswith("inductor/"))]
    defaults = {structure.name: structure.defaults for structure in lowered.structures}
    async with Evaluator(task, JudgeSettings(device="cpu", seed=3)) as judge:
        await judge.open()
        for name in chosen:
            evaluation = await judge.evaluate(await lowering.render(name, defaults[name]))
            assert evaluation.verdict is Verdict.CORRECT, f"{name}: {evaluation.reason}"
            assert evaluation.time_us is not None, f"{name}: {evaluation.reason}"
            assert not evaluation.labels, f"{name}: {evaluation.checks}"
