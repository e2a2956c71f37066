"""The few things the command line asks of the engine besides reading and steering."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.judging.evaluator import Evaluator
from engine.judging.facts import TaskFacts
from engine.loop.launch import LaunchError, launch
from engine.loop.process import judge_settings
from engine.records import CommandKind, Evaluation, RunState, Task
from engine.settings import RunSettings
from engine.store.control import Control
from engine.store.reader import Reader


def start_run(db: Path, task: Task, settings: RunSettings, name: str = "") -> int:
    """Makes a run and starts its engine; returns the run's number.

    Raises:
        StoreError: the database cannot be used.
        LaunchError: the engine did not start; the run is kept as failed.
    """
    with Control(db) as control:
        run = control.create_run(task, settings, name)
    try:
        launch(db, run)
    except LaunchError as error:
        with Control(db) as control:
            control.fail_to_start(run, str(error))
        raise
    return run


def resume_run(db: Path, run: int) -> str:
    """Lets a paused run go on, or starts a new engine where none works; returns what was done.

    Raises:
        StoreError: the database cannot be used.
        LaunchError: the engine did not start.
        KeyError: there is no such run.
    """
    with Reader(db) as reader:
        overview = reader.run(run)
    if overview is None:
        raise KeyError(f"there is no run {run} in {db}")
    alive = overview.engine is not None and overview.engine.alive
    if alive and overview.run.state is not RunState.PAUSED:
        assert overview.engine is not None
        return f"run {run} is already worked on by process {overview.engine.pid} on {overview.engine.host}"
    if overview.run.state is RunState.PAUSED:
        with Control(db) as control:
            control.ask(run, CommandKind.RESUME)
    if alive:
        return f"run {run} goes on"
    holder = launch(db, run)
    return f"run {run} goes on with a new engine, process {holder.pid}"


def judge(
    task: Task,
    sources: Sequence[str],
    settings: RunSettings,
    *,
    seed: int,
    on_result: Callable[[int, Evaluation], None] | None = None,
) -> tuple[TaskFacts, list[Evaluation]]:
    """Judges several candidates with one warm judge, outside any run.

    Raises:
        TaskError: the task cannot be judged.
        MachineError: this machine cannot judge.
    """

    async def work() -> tuple[TaskFacts, list[Evaluation]]:
        evaluator = Evaluator(task, judge_settings(settings, seed))
        async with evaluator:
            facts = await evaluator.open()
            evaluations = []
            for index, source in enumerate(sources):
                evaluations.append(await evaluator.evaluate(source))
                if on_result is not None:
                    on_result(index, evaluations[-1])
            return facts, evaluations

    return asyncio.run(work())
