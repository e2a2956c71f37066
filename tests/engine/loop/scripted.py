"""A scripted proposer and judge, strict about what they are asked, and a search with them over the real store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path

from engine.judging.confirmation import Bar
from engine.loop.evaluation_tasks import Judge
from engine.loop.search_loop import SearchLoop
from engine.proposing.proposer import ProposalFailed, ProposalRequest, Proposed
from engine.records import Candidate, CandidateState, Evaluation, ProposerKind, RunState, Step, Verdict
from engine.settings import RunSettings
from engine.store.control import Control
from engine.store.reader import Reader
from engine.store.run_store import RunStore
from engine.tasks.catalogue import find_task


class ScriptedProposer:
    """Offers a number of structures, and a number of variations of each candidate."""

    kind = ProposerKind.COMPILER

    def __init__(self, structures: int = 3, variations: int = 3, failing: tuple[int, ...] = ()) -> None:
        self.structures = structures
        self.variations = variations
        self.failing = failing
        self.given: dict[int | None, int] = {}

    def exhausted(self, parent: int | None, step: Step) -> str | None:
        if step is Step.STRUCTURAL:
            return None if self.given.get(None, 0) < self.structures else "no more structures"
        return None if self.given.get(parent, 0) < self.variations else "no more variations"

    async def propose(self, request: ProposalRequest) -> Proposed:
        key = None if request.step is Step.STRUCTURAL else request.parent
        assert self.exhausted(request.parent, request.step) is None, "asked for what is exhausted"
        self.given[key] = self.given.get(key, 0) + 1
        if request.number in self.failing:
            raise ProposalFailed("nothing usable")
        await asyncio.sleep(0)
        draw = request.random.randrange(10**9)
        return Proposed(f"{request.parent}/{request.step}/{draw}", f"draw {draw}", {"draw": draw})


class ScriptedJudge:
    """Gives each text a time that depends on the text alone."""

    def __init__(self, before: Callable[[str], None] | None = None) -> None:
        self.judged: list[str] = []
        self.bars: list[Bar] = []
        self.before = before

    async def evaluate(
        self, source: str, *, known: Collection[str], bar: Bar, on_waiting: Callable[[str], None]
    ) -> Evaluation:
        self.bars.append(bar)
        if self.before is not None:
            self.before(source)
        await asyncio.sleep(0)
        self.judged.append(source)
        time_us = 1.0 + sum(map(ord, source)) % 97
        return Evaluation(Verdict.CORRECT, "time", "", time_us=time_us, speedup={"eager": 50.0 / time_us})


def make_run(db: Path, **settings: object) -> int:
    with Control(db) as control:
        return control.create_run(find_task("softmax"), RunSettings.model_validate({"budget": 8, **settings}))


async def search(
    db: Path, run: int, proposer: ScriptedProposer | None = None, *judges: Judge
) -> tuple[RunState, list[Candidate]]:
    """Searches until the run ends; returns how it ended, and its candidates."""
    store = RunStore.take(db, run)
    store.set_state(RunState.RUNNING)
    settings = RunSettings.model_validate(store.run().settings)
    try:
        await SearchLoop(store, judges or [ScriptedJudge()], proposer or ScriptedProposer(), settings).run()
        return store.run().state, store.candidates()
    finally:
        store.release()


def in_state(reader: Reader, run: int, state: CandidateState) -> list[Candidate]:
    return [candidate for candidate in reader.candidates(run) if candidate.state is state]


def state_of(reader: Reader, run: int) -> RunState:
    overview = reader.run(run)
    assert overview is not None
    return overview.run.state


async def until(db: Path, condition: Callable[[Reader], bool]) -> None:
    async with asyncio.timeout(20):
        while True:
            with Reader(db) as reader:
                if condition(reader):
                    return
            await asyncio.sleep(0.02)
