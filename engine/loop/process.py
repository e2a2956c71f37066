"""The engine's process: one run, detached from any terminal, until the search ends or it is told to go.

SIGTERM and SIGINT make it put running work back, give its lease up and leave; the run can be resumed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sqlite3
import sys
import traceback
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from engine.judging.evaluator import Evaluator
from engine.judging.facts import MachineError, TaskFacts
from engine.judging.ratios import Ratio, weighted
from engine.judging.settings import JudgeSettings
from engine.loop.event_command import EventCommand
from engine.loop.proposers import ProposerParts
from engine.loop.search_loop import POLL_S, SearchLoop, keep_heartbeat
from engine.lowering.client import LoweringError
from engine.records import MeasurementKind, RunState, soundness_line
from engine.settings import RunSettings, SettingsError, parse_run_settings
from engine.store.database import StoreError
from engine.store.lease import LeaseHeld, LeaseLost
from engine.store.run_store import RunStore
from engine.tasks.catalogue import TaskError
from skills.errors import SkillError

T = TypeVar("T")

FAREWELL_S = 10.0
"""How long the end of a run may take to be told to the person's own command."""

NO_SMALL_FORM = (
    "the task declares no small form, so without a GPU each check runs at full size in the interpreter and may take "
    "longer than --timeout allows; give its file a dict SMALL with smaller values for its constants"
)

MODELLED_MODE = (
    "without a GPU times are modelled for calls from Python with a cold cache; --time graph and --cache warm change "
    "nothing here"
)


def main(arguments: list[str] | None = None) -> int:
    """Works on one run; returns the exit code (0 ended or left in order, 2 bad run, 3 the machine cannot)."""
    parser = argparse.ArgumentParser(prog="kernelgrove-engine")
    parser.add_argument("db", type=Path)
    parser.add_argument("run", type=int)
    options = parser.parse_args(arguments)
    try:
        store = RunStore.take(options.db, options.run)
    except KeyError as error:
        return _complain(str(error.args[0]), 2)
    except (LeaseHeld, StoreError) as error:
        return _complain(str(error), 3)
    try:
        return asyncio.run(_work(store))
    finally:
        # Where nothing can be written the lease stays; it ends with this process all the same.
        with contextlib.suppress(sqlite3.Error):
            store.release()


async def _work(store: RunStore) -> int:
    work = asyncio.create_task(_search(store))
    heartbeat = asyncio.create_task(keep_heartbeat(store))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, work.cancel)
    told = EventCommand(store, str(store.run().settings.get("on_event", "")))
    telling = asyncio.create_task(told.follow())
    await asyncio.wait([work, heartbeat], return_when=asyncio.FIRST_COMPLETED)
    for task in (work, heartbeat):
        task.cancel()
    code = _outcome(store, await asyncio.gather(work, heartbeat, return_exceptions=True))
    told.stop()
    await asyncio.wait([telling], timeout=FAREWELL_S)
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)
    return code


def _outcome(store: RunStore, results: Sequence[BaseException | None]) -> int:
    """Keeps what ended the work, if it failed; returns the exit code."""
    problem = next((r for r in results if isinstance(r, Exception)), None)
    if isinstance(problem, LeaseLost):
        return _complain(str(problem), 3)
    if problem is not None:
        traceback.print_exception(problem, file=sys.stderr)
        asked_wrongly = isinstance(problem, (TaskError, SettingsError, SkillError))
        try:
            store.set_state(RunState.FAILED, _plain(problem), ended_by="task" if asked_wrongly else "machine")
        except sqlite3.Error:
            _complain(_plain(problem), 3)
        return 2 if asked_wrongly else 3
    return 0


async def _search(store: RunStore) -> None:
    store.obey()
    run = store.run()
    settings = parse_run_settings(run.settings)
    if run.state not in (RunState.PAUSED, RunState.STOPPING):
        store.set_state(RunState.RUNNING)
    try:
        await _search_with(store, settings)
    except _Stopped:
        store.set_state(RunState.STOPPED, "stopped by a person", ended_by="stop")


async def _search_with(store: RunStore, settings: RunSettings) -> None:
    task = store.task()
    async with AsyncExitStack() as stack:
        # Judges and lowering import torch, which takes most of their start: one beside the other.
        parts = await stack.enter_async_context(ProposerParts(store, task, settings))
        judges = [
            Evaluator(
                task,
                judge_settings(settings, store.judge_seed(), device),
                store.own_baselines(),
                audit=store.audit(),
                known=store.known_baselines,
                on_facts=lambda facts: store.keep_baselines(facts.device, facts.kind, facts_document(facts)),
            )
            for device in settings.devices
        ]
        for judge in judges:
            stack.push_async_exit(judge)
        facts = one_kind(await _unless_stopped(store, asyncio.gather(*(judge.open() for judge in judges))))
        keep_facts(store, facts)
        if facts.audit is not None and (warning := soundness_line(facts.audit)):
            store.note(warning)
        if facts.kind is MeasurementKind.MODELLED and not all(case.small_overrides for case in task.cases):
            store.note(NO_SMALL_FORM)
        if facts.kind is MeasurementKind.MODELLED and (settings.time, settings.cache) != ("launch", "cold"):
            store.note(MODELLED_MODE)
        proposer = await _unless_stopped(store, parts.proposer())
        await SearchLoop(store, judges, proposer, settings).run()


class _Stopped(Exception):
    """A person ended the run before its search began."""


async def _unless_stopped(store: RunStore, work: Awaitable[T]) -> T:
    """Waits for a part of the start, which may take minutes, and obeys people meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        while True:
            store.obey()
            if store.run().state is RunState.STOPPING:
                raise _Stopped
            done, _ = await asyncio.wait([task], timeout=POLL_S)
            if done:
                return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def judge_settings(settings: RunSettings, seed: int, device: str | None = None) -> JudgeSettings:
    """The part of a run's settings that the judge of a device needs; by default of the first."""
    return JudgeSettings(
        device=device or settings.devices[0],
        arch=settings.arch,
        python=settings.python,
        timeout_s=settings.timeout,
        seed=seed,
        dtype=settings.dtype,
        numerics=settings.numerics,
        time_mode=settings.time,
        cache=settings.cache,
        no_regress=settings.no_regress,
        max_memory_bytes=settings.max_memory,
    )


def one_kind(found: Sequence[TaskFacts]) -> TaskFacts:
    """What the judges of all devices say of task and machine; the first one's times stand for all.

    Raises:
        MachineError: the devices are not of one model.
    """
    names = {facts.device for facts in found}
    if len(names) > 1:
        raise MachineError(
            f"{' and '.join(sorted(names))} are different models, whose times cannot be compared; "
            "name devices of one model with --device"
        )
    return found[0]


def keep_facts(store: RunStore, facts: TaskFacts) -> None:
    """Keeps what the judge found.

    Raises:
        MachineError: the run's other candidates were judged on another device.
    """
    run = store.run()
    if run.facts and (run.facts["kind"], run.device) != (facts.kind, facts.device):
        raise MachineError(
            f"run {run.id} was judged on {run.device} and this is {facts.device}, whose times cannot be compared; "
            "resume it on a machine like the first, or start a new run here"
        )
    document = facts_document(facts)
    store.task_opened(facts.device, facts.kind, document, document["baselines"])


def facts_document(facts: TaskFacts) -> dict[str, Any]:
    """What the judge found, as a run keeps it.

    Its `baselines`, the bound among them, are those of all cases: weighted geometric means, as a candidate's time is.
    """
    known = [dict(case.baselines) | ({"bound": case.bound_us} if case.bound_us else {}) for case in facts.cases]
    weights = [case.weight for case in facts.cases]
    baselines = {
        name: weighted([(weight, Ratio(times[name])) for weight, times in zip(weights, known, strict=True)]).value
        for name in known[0]
        if all(name in times for times in known)
    }
    return {**asdict(facts), "kind": str(facts.kind), "baselines": baselines}


def _plain(problem: Exception) -> str:
    if isinstance(problem, (TaskError, MachineError, SettingsError, SkillError, LoweringError, StoreError)):
        return str(problem)
    if isinstance(problem, sqlite3.OperationalError):
        return f"the database cannot be written ({problem}); make room for it, then let the run go on"
    return f"the engine failed: {type(problem).__name__}: {problem}"


def _complain(text: str, code: int) -> int:
    print(text, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
