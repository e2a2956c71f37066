"""Endless candidates are killed at their deadline; cancelling kills at once; nothing stays behind."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import replace

import pytest

from engine.judging.evaluator import Evaluator
from engine.judging.settings import JudgeSettings
from engine.records import Verdict
from tests.engine.judging.conftest import SCALE_TASK, children_of, make_task, scale_candidate
from tests.engine.judging.test_bad_candidates import in_forward, in_module

TASK = make_task(SCALE_TASK, {"ROWS": 7, "COLUMNS": 50})


async def test_endless_loops_end_at_the_deadline(cpu_settings: JudgeSettings) -> None:
    async with Evaluator(TASK, replace(cpu_settings, timeout_s=2.0)) as judge:
        in_python = in_module("while True: pass")
        kernel = scale_candidate(("    bias = tl.load", "    while row >= 0:\n        row = row\n    bias = tl.load"))
        deaf = in_module(
            "import signal, time\n"
            "for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:\n"
            "    signal.signal(number, signal.SIG_IGN)\n"
            "while True: time.sleep(60)"
        )
        results = await asyncio.gather(*(judge.evaluate(source) for source in (in_python, kernel, deaf)))
        assert [result.verdict for result in results] == [Verdict.TIMEOUT] * 3
        assert [result.stage for result in results] == ["load", "compile", "load"]
        assert results[0].reason == "the candidate did not finish within 2 s while it was loaded"
        assert (await judge.evaluate(scale_candidate())).correct


async def test_cancelling_kills_the_candidate_and_spares_its_neighbour(cpu_settings: JudgeSettings) -> None:
    async with Evaluator(TASK, cpu_settings) as judge:
        started = asyncio.Event()
        endless = in_forward("print('started', flush=True)\n        while True: pass")
        task = asyncio.create_task(judge.evaluate(endless, on_log=lambda text: started.set()))
        await started.wait()
        neighbour = asyncio.create_task(judge.evaluate(scale_candidate()))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await neighbour).correct
        assert judge._crew is not None
        assert await emptied(judge._crew._nursery.process.pid)


async def emptied(nursery: int) -> bool:
    """Waits until the nursery has no child."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if not await asyncio.to_thread(children_of, nursery):
            return True
    return False


@pytest.mark.parametrize("victim", ["judge", "nursery"])
async def test_a_killed_worker_is_replaced_and_never_held_against_a_candidate(
    cpu_settings: JudgeSettings, victim: str
) -> None:
    async with Evaluator(TASK, cpu_settings) as judge:
        first = judge._crew
        assert first is not None
        killed: list[int] = []

        def kill_once(text: str) -> None:
            if not killed:
                worker = next(worker for worker in first._workers if worker.name == victim)
                killed.append(worker.process.pid)
                os.kill(worker.process.pid, signal.SIGKILL)

        waits = in_forward("import time\n        print('here', flush=True)\n        time.sleep(0.1)")
        evaluation = await judge.evaluate(waits, on_log=kill_once)
        assert killed
        assert evaluation.correct
        assert judge._crew is not first
        assert not os.path.exists(first.folder)


async def test_a_candidate_that_kills_its_nursery_each_time_is_given_back_unjudged(cpu_settings: JudgeSettings) -> None:
    async with Evaluator(TASK, replace(cpu_settings, sandbox="no-landlock")) as judge:
        evaluation = await judge.evaluate(in_module("import os; os.kill(os.getppid(), 9)"))
        assert evaluation.verdict is Verdict.INFRASTRUCTURE_ERROR
        assert "the nursery ended" in evaluation.reason
        assert (await judge.evaluate(scale_candidate())).correct


async def test_closing_leaves_no_process_and_no_file(cpu_settings: JudgeSettings) -> None:
    before = set(children_of(os.getpid()))
    judge = Evaluator(TASK, cpu_settings)
    await judge.open()
    assert judge._crew is not None
    folder = judge._crew.folder
    running = asyncio.create_task(judge.evaluate(in_module("while True: pass")))
    await asyncio.sleep(0)
    await judge.close()
    assert (await running).verdict is Verdict.INFRASTRUCTURE_ERROR
    assert set(children_of(os.getpid())) <= before
    assert not folder.exists()
