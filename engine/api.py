"""The few things the command line asks of the engine besides reading and steering."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.ends import End, end_of
from engine.judging.confirmation import Bar
from engine.judging.crew import Crew
from engine.judging.evaluator import Evaluator
from engine.judging.facts import TaskFacts
from engine.judging.preflight import check_machine
from engine.loop.launch import LaunchError, launch
from engine.loop.process import facts_document, judge_settings
from engine.loop.proposers import asks_a_model
from engine.proposing.briefing import Subject, structural_briefing
from engine.proposing.findings import usable_skills
from engine.proposing.prices import priced, short_of_money
from engine.proposing.prompt import Prompt
from engine.records import Audit, BaselineKernel, CommandKind, CommandState, Evaluation, RunState, Spending, Step, Task
from engine.search.policies import find_policy
from engine.settings import RunSettings, SettingsError, parse_run_settings
from engine.store.control import Control
from engine.store.database import StoreError
from engine.store.reader import Reader, RunOverview
from engine.tasks.catalogue import builtin_tasks, entry_point

LEAVING_S = 20.0
"""How long an engine may take to leave after its run has ended."""


def start_run(db: Path, task: Task, settings: RunSettings, name: str = "", start: str | None = None) -> int:
    """Makes a run and starts its engine; returns the run's number. `start` is a kernel's text to start from.

    Raises:
        SettingsError: a policy, an architecture or a baseline's file is not there; nothing is kept.
        TaskError: the task cannot be judged; nothing is kept.
        MachineError: kernels cannot be judged with the interpreter that is named; nothing is kept.
        StoreError: the database cannot be used.
        LaunchError: the engine did not start; the run is kept as failed.
    """
    find_policy(settings.policy.name)
    check_machine(settings)
    baselines = read_baselines(settings.baseline)
    found = _known_audit(db, task, settings)
    if found is None and task not in builtin_tasks():
        # A task that cannot be judged leaves nothing behind.
        found = audit(task, settings, seed=secrets.randbits(62), for_search=True)
    with Control(db) as control:
        run = control.create_run(task, settings, name, baselines, start, found)
    try:
        launch(db, run)
    except LaunchError as error:
        with Control(db) as control:
            control.fail_to_start(run, str(error))
        raise
    return run


def _known_audit(db: Path, task: Task, settings: RunSettings) -> Audit | None:
    """What an audit has found of a task for an earlier run, its inputs cast in the same way."""
    if not db.exists():
        return None
    with Reader(db) as reader:
        return reader.audit(task, settings.dtype)


def preview_run(db: Path, task: Task, settings: RunSettings) -> Prompt:
    """The first prompt that a search would send; nothing is sent, and no run is made.

    Raises:
        TaskError: the task cannot be judged.
        MachineError: this machine cannot judge.
        StoreError: the database cannot be used.
    """

    async def look() -> TaskFacts:
        evaluator = Evaluator(task, judge_settings(settings, secrets.randbits(62)), read_baselines(settings.baseline))
        async with evaluator:
            return await evaluator.open()

    facts = asyncio.run(look())
    with Control(db) as control, control.skills():
        pass
    subject = Subject(task, entry_point(task), facts.device, facts_document(facts), settings)
    with Reader(db) as reader:
        briefing = structural_briefing(subject, usable_skills(reader, settings.skills))
    prompt, _ = briefing.prompt("structural", settings.llm.prompt_tokens)
    return prompt


def audit(task: Task, settings: RunSettings, *, seed: int, for_search: bool = False) -> Audit:
    """Says whether a task can tell right from wrong.

    Args:
        task: the task.
        settings: the first device, the dtype and the interpreter are used.
        seed: what inputs and weights are drawn from.
        for_search: whether a task that no candidate could be right for is an error.

    Raises:
        TaskError: the task cannot be judged at all.
        MachineError: this machine cannot run it.
    """

    async def work() -> Audit:
        return await Crew(task, judge_settings(settings, seed)).audit(for_search=for_search)

    return asyncio.run(work())


def read_baselines(files: Sequence[str]) -> tuple[BaselineKernel, ...]:
    """People's own kernels, called by their files' names, or paths where two names are the same.

    Raises:
        SettingsError: a file cannot be read, or is named twice.
    """
    names = [Path(file).name for file in files]
    kernels = []
    for file, name in zip(files, names, strict=True):
        try:
            source = Path(file).read_text()
        except (OSError, UnicodeDecodeError) as error:
            problem = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror
            raise SettingsError(
                f"the baseline {file} cannot be read: {problem}; name a file that defines ModelNew"
            ) from error
        kernels.append(BaselineKernel(name if names.count(name) == 1 else file, source))
    if len({kernel.name for kernel in kernels}) < len(kernels):
        raise SettingsError(f"a baseline is given twice: {', '.join(files)}; name each file once")
    return tuple(kernels)


def resume_run(db: Path, run: int, ends: Mapping[str, Any] | None = None) -> str:
    """Lets a paused run go on, or starts a new engine where none works; returns what was done.

    A pause that no engine has seen yet is overtaken: the newest word counts. `ends` are settings that decide when
    the run ends, such as `budget`, and are changed first.

    Raises:
        StoreError: the database cannot be used.
        LaunchError: the engine did not start.
        KeyError: there is no such run.
        SettingsError: the run has come to an end that was set, and nothing waits; or an end cannot be changed.
    """
    with Reader(db) as reader:
        overview = _overview(reader, run)
        asked = reader.commands(run, CommandState.QUEUED)
        if overview.run.state.ended:
            _wait_for_the_end_of_its_engine(reader, run)
            overview = _overview(reader, run)
        alive = overview.engine is not None and overview.engine.alive
        if ends:
            if alive:
                raise SettingsError(
                    f"an engine works on run {run}, which ends as it was set to; change its budget with: "
                    f"kernelgrove budget {run} N"
                )
            if ends.get("max_cost") is not None:
                settings = parse_run_settings({**overview.run.settings, **ends})
                priced(settings.llm, {}, settings.max_cost)
            with Control(db) as control:
                control.change_ends(run, ends)
            overview = _overview(reader, run)
        if not alive:
            _must_have_work(reader, overview)
    paused = overview.run.state is RunState.PAUSED or any(command.kind is CommandKind.PAUSE for command in asked)
    if alive and not paused:
        assert overview.engine is not None
        return f"run {run} is already worked on by process {overview.engine.pid} on {overview.engine.host}"
    if paused:
        with Control(db) as control:
            control.ask(run, CommandKind.RESUME)
    if alive:
        return f"run {run} goes on"
    holder = launch(db, run)
    return f"run {run} goes on with a new engine, process {holder.pid}"


def _overview(reader: Reader, run: int) -> RunOverview:
    overview = reader.run(run)
    if overview is None:
        raise KeyError(f"there is no run {run} in {reader.path}")
    return overview


def _must_have_work(reader: Reader, overview: RunOverview) -> None:
    """An engine that finds the run's end reached and nothing waiting would start for nothing.

    Raises:
        SettingsError: it would; the message says how to let the run go on.
    """
    run = overview.run
    settings = parse_run_settings(run.settings)
    end = end_of(settings, reader.standing(overview, time.time())) or _end_of_money(settings, overview.spending)
    if end is not None and not reader.has_work(run.id):
        flag = {"budget": "budget N", "time": "until HH:MM, or --max-time", "cost": "max-cost USD"}.get(end.by, end.by)
        raise SettingsError(f"{end.reason}; let run {run.id} go on with: kernelgrove resume {run.id} --{flag}")


def _end_of_money(settings: RunSettings, spending: Spending) -> End | None:
    short = short_of_money(settings, spending, Step.STRUCTURAL) if asks_a_model(settings) else None
    return None if short is None else End("cost", short)


def _wait_for_the_end_of_its_engine(reader: Reader, run: int) -> None:
    """An engine keeps its run for a moment after the end, while it ends the processes below it."""
    deadline = time.monotonic() + LEAVING_S
    while (holder := reader.holder(run)) is not None and holder.alive and time.monotonic() < deadline:
        time.sleep(0.05)


def judge(
    task: Task,
    sources: Sequence[str],
    settings: RunSettings,
    *,
    seed: int,
    db: Path | None = None,
    on_result: Callable[[int, Evaluation], None] | None = None,
) -> tuple[TaskFacts, list[Evaluation]]:
    """Judges several candidates with one warm judge, outside any run.

    Baselines that a run has measured in the database `db`, if it is there, are taken over.

    Raises:
        SettingsError: a baseline's file cannot be read.
        TaskError: the task cannot be judged.
        MachineError: this machine cannot judge.
    """
    own = read_baselines(settings.baseline)

    def known(fingerprint: Mapping[str, str]) -> list[dict[str, Any]]:
        with contextlib.suppress(StoreError):
            if db is not None and db.exists():
                with Reader(db) as reader:
                    return reader.known_baselines(task, fingerprint)
        return []

    async def work() -> tuple[TaskFacts, list[Evaluation]]:
        evaluator = Evaluator(task, judge_settings(settings, seed), own, known=known)
        async with evaluator:
            facts = await evaluator.open()
            evaluations = []
            for index, source in enumerate(sources):
                evaluations.append(await evaluator.evaluate(source, bar=Bar()))
                if on_result is not None:
                    on_result(index, evaluations[-1])
            return facts, evaluations

    return asyncio.run(work())
