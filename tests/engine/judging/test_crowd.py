"""Candidates are judged beside others or alone; one that ran out of a GPU's memory beside others gets a second try."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from engine.judging.crowd import Crowd
from engine.judging.evaluator import Evaluator
from engine.judging.settings import JudgeSettings
from engine.records import MeasurementKind, Verdict
from tests.engine.judging.conftest import SCALE_TASK, make_task, scale_candidate
from tests.engine.judging.test_bad_candidates import in_forward


async def test_places_beside_others_are_held_together_and_know_it() -> None:
    crowd = Crowd()
    async with crowd.place() as first:
        assert not first.crowded
        async with crowd.place() as second:
            assert first.crowded and second.crowded
    async with crowd.place() as third:
        assert not third.crowded


async def test_a_place_alone_waits_for_all_and_is_not_overtaken() -> None:
    crowd = Crowd()
    order: list[str] = []
    leave = asyncio.Event()

    async def hold(name: str, alone: bool = False) -> None:
        async with crowd.place(alone) as place:
            order.append(name)
            if name == "first":
                await leave.wait()
            assert not (alone and place.crowded)

    tasks = [asyncio.create_task(hold("first")), asyncio.create_task(hold("alone", True))]
    tasks.append(asyncio.create_task(hold("late")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert order == ["first"]
    leave.set()
    await asyncio.gather(*tasks)
    assert order == ["first", "alone", "late"]


async def test_whoever_gives_up_waiting_keeps_nobody_waiting() -> None:
    crowd = Crowd()

    async def hold(alone: bool) -> None:
        async with crowd.place(alone):
            pass

    async with crowd.place():
        waiting, next_one = asyncio.create_task(hold(True)), asyncio.create_task(hold(False))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.wait_for(next_one, 5)
    await asyncio.wait_for(hold(True), 5)


async def test_who_runs_out_of_a_gpus_memory_beside_others_is_judged_again_alone(cpu_settings: JudgeSettings) -> None:
    greedy = in_forward("print('called'); bytearray(1 << 40)")
    async with Evaluator(make_task(SCALE_TASK, {"ROWS": 7, "COLUMNS": 50}), cpu_settings) as judge:
        assert judge.facts is not None
        heard: list[str] = []
        # Without a GPU each has memory of its own: once is enough.
        await asyncio.gather(judge.evaluate(greedy, on_log=heard.append), judge.evaluate(scale_candidate()))
        assert "".join(heard).split() == ["called"]
        judge.facts = replace(judge.facts, kind=MeasurementKind.MEASURED)
        heard.clear()
        greedy_one, honest = await asyncio.gather(
            judge.evaluate(greedy, on_log=heard.append), judge.evaluate(scale_candidate())
        )
        assert "".join(heard).split() == ["called"] * 2
        assert (greedy_one.verdict, honest.verdict) == (Verdict.OUT_OF_MEMORY, Verdict.CORRECT)
        heard.clear()
        await judge.evaluate(greedy, on_log=heard.append)
        assert "".join(heard).split() == ["called"]
