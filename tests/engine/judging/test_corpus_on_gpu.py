"""The whole corpus on a GPU: several candidates at once, judged while the first results are looked at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from engine.judging.evaluator import Evaluator
from engine.judging.settings import JudgeSettings
from engine.records import Evaluation
from tests.engine.judging.corpus import FOLDER, HONEST, OUTCOME, Attempt, corpus_task, read_attempt, read_corpus

pytestmark = [pytest.mark.gpu, pytest.mark.asyncio(loop_scope="module")]

Report = Callable[[str, object], None]
CORPUS = read_corpus()
SETTINGS = JudgeSettings(device="cuda:0", seed=20_24_06_01, timeout_s=120.0, baselines=("eager",))
JUDGES = 4
"""How many tasks are open at a time: each judge keeps questions and answers in the GPU's memory."""
CANDIDATES = 4
"""How many candidates of one task are judged at a time."""


class Verdicts:
    """Judges what was collected, task after task, and gives each outcome when it is there."""

    def __init__(self, attempts: list[Attempt]) -> None:
        twins = {attempt.twin for attempt in attempts if attempt.twin is not None}
        named = [*attempts, *(read_attempt(FOLDER / HONEST / f"{twin}.py") for twin in sorted(twins))]
        self._attempts = list({attempt.name: attempt for attempt in named}.values())
        loop = asyncio.get_running_loop()
        self._outcomes: dict[str, asyncio.Future[Evaluation]] = {
            attempt.name: loop.create_future() for attempt in self._attempts
        }
        self._running = asyncio.ensure_future(self._run())

    async def of(self, name: str) -> Evaluation:
        return await asyncio.shield(self._outcomes[name])

    async def close(self) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, *self._outcomes.values(), return_exceptions=True)

    async def _run(self) -> None:
        limit = asyncio.Semaphore(JUDGES)
        tasks = dict.fromkeys(attempt.task for attempt in self._attempts)
        try:
            await asyncio.gather(*(self._judge(task, limit) for task in tasks))
        except BaseException as error:
            for outcome in self._outcomes.values():
                if not outcome.done():
                    outcome.set_exception(RuntimeError(f"the judge failed: {error!r}"))
            raise

    async def _judge(self, task: str, judges: asyncio.Semaphore) -> None:
        limit = asyncio.Semaphore(CANDIDATES)
        async with judges, Evaluator(corpus_task(task), SETTINGS) as judge:
            mine = [attempt for attempt in self._attempts if attempt.task == task]
            await asyncio.gather(*(self._evaluate(judge, attempt, limit) for attempt in mine))

    async def _evaluate(self, judge: Evaluator, attempt: Attempt, limit: asyncio.Semaphore) -> None:
        async with limit:
            self._outcomes[attempt.name].set_result(await judge.evaluate(attempt.source))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def verdicts(request: pytest.FixtureRequest) -> AsyncIterator[Verdicts]:
    items = [item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    chosen: list[Any] = [item.callspec.params["attempt"] for item in items]
    verdicts = Verdicts(chosen)
    yield verdicts
    await verdicts.close()


@pytest.mark.parametrize("attempt", [pytest.param(attempt, id=attempt.name) for attempt in CORPUS])
async def test_every_candidate_is_judged_as_it_must_be(
    verdicts: Verdicts, attempt: Attempt, record_property: Report
) -> None:
    twin = await verdicts.of(f"{HONEST}/{attempt.twin}") if attempt.twin is not None else None
    problem = attempt.problem("gpu", await verdicts.of(attempt.name), twin)
    record_property(OUTCOME, ("on the GPU", attempt.group, not problem))
    assert not problem, f"{attempt.name}: {problem}"
