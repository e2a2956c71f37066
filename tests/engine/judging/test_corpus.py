"""The judge cannot be fooled and does not cry wolf: every candidate of the corpus gets the outcome it must get.

On every machine with Triton's interpreter; on one with a GPU there as well (`test_corpus_on_gpu`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from engine.judging.evaluator import Evaluator
from engine.judging.settings import JudgeSettings
from engine.records import Evaluation
from tests.engine.judging.corpus import FOLDER, HONEST, OUTCOME, Attempt, corpus_task, read_attempt, read_corpus

Report = Callable[[str, object], None]
CORPUS = read_corpus()
SETTINGS = JudgeSettings(device="cpu", seed=20_24_06_01, timeout_s=60.0)


class Judges:
    """One judge at a time: the one of the task that was asked for last."""

    def __init__(self) -> None:
        self._judge: Evaluator | None = None
        self._twins: dict[str, Evaluation] = {}

    async def evaluate(self, attempt: Attempt) -> Evaluation:
        if self._judge is None or self._judge.task.name != attempt.task:
            await self.close()
            self._judge = Evaluator(corpus_task(attempt.task), SETTINGS)
        return await self._judge.evaluate(attempt.source)

    async def twin(self, attempt: Attempt) -> Evaluation | None:
        if attempt.twin is None:
            return None
        if attempt.twin not in self._twins:
            self._twins[attempt.twin] = await self.evaluate(read_attempt(FOLDER / HONEST / f"{attempt.twin}.py"))
        return self._twins[attempt.twin]

    async def close(self) -> None:
        if self._judge is not None:
            await self._judge.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judges() -> AsyncIterator[Judges]:
    judges = Judges()
    yield judges
    await judges.close()


def _parameters(quick: bool) -> list[object]:
    return [pytest.param(attempt, id=attempt.name) for attempt in CORPUS if attempt.quick == quick and not attempt.gpu]


async def _judged_as_it_must_be(judges: Judges, attempt: Attempt, report: Report) -> None:
    problem = attempt.problem("cpu", await judges.evaluate(attempt), await judges.twin(attempt))
    report(OUTCOME, ("in the interpreter", attempt.group, not problem))
    assert not problem, f"{attempt.name}: {problem}"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("attempt", _parameters(quick=True))
async def test_a_sample_of_every_class_is_judged_as_it_must_be(
    judges: Judges, attempt: Attempt, record_property: Report
) -> None:
    await _judged_as_it_must_be(judges, attempt, record_property)


@pytest.mark.corpus
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("attempt", _parameters(quick=False))
async def test_the_whole_corpus_is_judged_as_it_must_be(
    judges: Judges, attempt: Attempt, record_property: Report
) -> None:
    await _judged_as_it_must_be(judges, attempt, record_property)


def test_every_class_is_tried_in_at_least_two_ways_and_in_every_run() -> None:
    groups = {attempt.group for attempt in CORPUS}
    for group in groups:
        members = [attempt for attempt in CORPUS if attempt.group == group]
        assert len({attempt.source for attempt in members}) == len(members) >= 2, group
        assert any(attempt.quick for attempt in members) or all(attempt.gpu for attempt in members), group
    assert {path.stem for path in (FOLDER / "tasks").glob("*.py")} == {attempt.task for attempt in CORPUS}
    twins = {attempt.twin for attempt in CORPUS if attempt.twin is not None}
    assert all((FOLDER / HONEST / f"{twin}.py").exists() for twin in twins)
