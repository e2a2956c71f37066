"""Function tasks on a GPU: timed calls find their arguments as they were, and are checked in what they leave there."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from engine.judging.evaluator import Evaluator
from engine.judging.settings import JudgeSettings
from engine.records import Soundness, Verdict
from engine.tasks.catalogue import read_task
from tests.engine.judging.corpus import FOLDER, HONEST, corpus_task
from tests.engine.judging.test_function_tasks import CANDIDATE, TASK

pytestmark = pytest.mark.gpu


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judge() -> AsyncIterator[Evaluator]:
    async with Evaluator(read_task(TASK, "update.py"), JudgeSettings(device="cuda:0", seed=31)) as evaluator:
        yield evaluator


@pytest.mark.asyncio(loop_scope="module")
async def test_a_function_that_changes_its_argument_is_timed_on_every_case(judge: Evaluator) -> None:
    evaluation = await judge.evaluate(CANDIDATE)
    assert evaluation.verdict is Verdict.CORRECT, evaluation.reason
    assert evaluation.labels == ()
    assert len(evaluation.cases) == 2
    for case in evaluation.cases:
        assert case.measurement is not None and case.bound_us is not None
        assert case.measurement.time_us > 0.5 * case.bound_us
        assert {"eager", "compile"} <= set(case.baselines)
    # The state would grow from call to call and leave the finite numbers if it were not given back.
    assert evaluation.numerics is not None and evaluation.numerics.tier == "exact"
    assert judge.facts is not None and judge.facts.audit is not None
    assert judge.facts.audit.verdict is Soundness.SOUND


@pytest.mark.asyncio(loop_scope="module")
async def test_a_state_that_is_only_updated_at_first_is_found_out_when_timed(judge: Evaluator) -> None:
    lazy = CANDIDATE.replace(
        "def update(state, x, variance, rate):\n",
        "calls = 0\n\n\ndef update(state, x, variance, rate):\n"
        "    global calls\n    calls += 1\n    kept = state.clone() if calls > 60 else None\n",
    ).replace("    return y", "    if kept is not None:\n        state.copy_(kept)\n    return y")
    evaluation = await judge.evaluate(lazy)
    assert evaluation.verdict is Verdict.INCORRECT, evaluation.labels


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", ["rotate", "append"])
async def test_functions_that_return_nothing_or_a_dict_are_timed(name: str) -> None:
    source = (FOLDER / HONEST / f"plain_{name}.py").read_text()
    async with Evaluator(corpus_task(name), JudgeSettings(device="cuda:0", seed=32)) as judge:
        evaluation = await judge.evaluate(source)
    assert evaluation.verdict is Verdict.CORRECT, evaluation.reason
    assert evaluation.labels == () and evaluation.time_us is not None


@pytest.mark.parametrize("mode", ["launch", "graph"])
async def test_half_types_and_graphs_take_functions_too(mode: str) -> None:
    settings = JudgeSettings(device="cuda:0", seed=33, dtype="bfloat16", time_mode=mode)
    async with Evaluator(read_task(TASK, "update.py"), settings) as judge:
        evaluation = await judge.evaluate(CANDIDATE.replace("mask=mask)\n", "mask=mask).to(tl.float32)\n", 2))
    assert evaluation.verdict is Verdict.CORRECT, evaluation.reason
    assert evaluation.time_us is not None
