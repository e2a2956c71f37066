"""Judges candidates of one task on one device: the engine's only door to the judge's processes.

Runs on asyncio and loads no torch; several candidates may be judged at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import TracebackType

from engine.judging import second_opinion, verdicts
from engine.judging.confirmation import Bar
from engine.judging.contest import Contest, DiskFailed, Told
from engine.judging.crew import Crew, CrewBroken
from engine.judging.crowd import Crowd
from engine.judging.facts import MachineError, TaskFacts, case_facts
from engine.judging.settings import JudgeSettings
from engine.judging.wire import Message
from engine.records import Audit, BaselineKernel, Evaluation, MeasurementKind, Task, Verdict
from engine.tasks.catalogue import TaskError

_ATTEMPTS = 2
"""A crew that breaks under a candidate is replaced once before the candidate is given back unjudged."""

Known = Callable[[Mapping[str, str]], Sequence[Message]]
"""Gives what earlier runs found of the task's baselines with the same device, settings and versions."""


class Evaluator:
    """One task on one device. Use it as `async with Evaluator(task, settings) as evaluator`."""

    def __init__(
        self,
        task: Task,
        settings: JudgeSettings,
        own: Sequence[BaselineKernel] = (),
        *,
        audit: Audit | None = None,
        known: Known = lambda fingerprint: (),
        on_facts: Callable[[TaskFacts], None] = lambda facts: None,
    ) -> None:
        """Takes what is judged and how.

        Args:
            task: the task.
            settings: how to judge.
            own: people's own kernels to compare candidates with.
            audit: what an earlier audit found of the task; None has it audited.
            known: gives what earlier runs found.
            on_facts: is told what has been found of the task, and again when it is more.
        """
        self.task = task
        self.settings = settings
        self.facts: TaskFacts | None = None
        self._own = tuple(own)
        self._own_times: dict[str, list[float]] = {}
        self._audit = audit
        self._known = known
        self._on_facts = on_facts
        self._crew: Crew | None = None
        self._crew_lock = asyncio.Lock()
        self._interpreter: Evaluator | None = None
        self._crowd = Crowd()
        self._closed = False

    async def open(self) -> TaskFacts:
        """Starts judge, nursery and, without a GPU, the compile nursery.

        Raises:
            TaskError: the task cannot be judged.
            MachineError: this machine cannot judge it.
        """
        crew = await self._intact_crew()
        assert self.facts is not None and crew
        return self.facts

    async def close(self) -> None:
        """Ends every process; evaluations under way are given back unjudged."""
        self._closed = True
        crew, self._crew = self._crew, None
        if crew is not None:
            await crew.close()
        if self._interpreter is not None:
            await self._interpreter.close()

    async def __aenter__(self) -> Evaluator:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _intact_crew(self) -> Crew:
        async with self._crew_lock:
            if self._closed:
                raise CrewBroken("the evaluator is closed")
            if self._crew is not None and self._crew.broken.done():
                broken, self._crew = self._crew, None
                await broken.close()
            if self._crew is None:
                self._crew = await self._new_crew()
                small = second_opinion.small_task(self.task)
                measured = self._crew.device != "cpu"
                if measured and self.settings.second_opinion and small and self._interpreter is None:
                    settings = second_opinion.settings_for(self.settings)
                    self._interpreter = Evaluator(small, settings, audit=self._audit)
            return self._crew

    async def _new_crew(self) -> Crew:
        try:
            crew = Crew(self.task, self.settings, self._audit)
            await crew.open(self._known)
        except OSError as error:
            raise MachineError(f"judge and nursery cannot be started: {error.strerror or error}.") from error
        try:
            self._audit = Audit.from_json(crew.ready["audit"])
            self.facts = self._facts_of(crew)
            for kernel in self._own:
                if kernel.name not in self._own_times:
                    self._own_times[kernel.name] = await self._times_of(crew, kernel)
            if self._own and self.facts.kind is MeasurementKind.MEASURED:
                await crew.compare_with(self._own)
            self.facts = self._facts_of(crew)
            self._on_facts(self.facts)
        except CrewBroken as error:
            await crew.close()
            raise MachineError(f"{error}.") from error
        except BaseException:
            await crew.close()
            raise
        return crew

    async def _times_of(self, crew: Crew, kernel: BaselineKernel) -> list[float]:
        """Microseconds of one of people's own kernels by case.

        Raises:
            TaskError: the kernel is not right, or has no time.
        """
        evaluation = await Contest(crew, self.settings, self._present_facts, kernel.source, Told()).run()
        if not evaluation.correct:
            raise TaskError(
                f"the baseline {kernel.name} is not correct for the task {self.task.name}: {evaluation.reason}; "
                "compare with a kernel that is"
            )
        times = [case.measurement.time_us for case in evaluation.cases if case.measurement is not None]
        if len(times) < len(evaluation.cases):
            raise TaskError(f"the baseline {kernel.name} has no time: {evaluation.reason}")
        return times

    def _present_facts(self) -> TaskFacts:
        assert self.facts is not None
        return self.facts

    def _facts_of(self, crew: Crew) -> TaskFacts:
        modelled = crew.device == "cpu"
        cases = [case_facts(case, self.settings.arch, self.settings.lowest_tier) for case in crew.ready["cases"]]
        if modelled:
            # On a GPU they are baselines in processes of their own.
            for name, times in self._own_times.items():
                cases = [case.with_baseline(name, time_us) for case, time_us in zip(cases, times, strict=True)]
        return TaskFacts(
            device=f"cpu (modelling {self.settings.arch})" if modelled else crew.device_name,
            toolchain=crew.toolchain | ({"arch": self.settings.arch} if modelled else {}),
            kind=MeasurementKind.MODELLED if modelled else MeasurementKind.MEASURED,
            cases=tuple(cases),
            notes=tuple(case["problem"] for case in crew.ready["cases"] if case["problem"]),
            own=tuple(self._own_times),
            fingerprint={} if modelled else crew.fingerprint,
            audit=self._audit,
        )

    async def evaluate(
        self,
        source: str,
        *,
        bar: Bar | None = None,
        on_log: Callable[[str], None] | None = None,
        known: Collection[str] = (),
        on_waiting: Callable[[str], None] = lambda what: None,
    ) -> Evaluation:
        """Judges one candidate.

        Whatever the candidate does becomes a verdict; failures of the machine become
        `infrastructure_error`. Cancelling kills the candidate's process.

        Args:
            source: the candidate's module text.
            bar: what it must clear to be timed at the full tempo and again in fresh processes; None does neither.
            on_log: is handed what the candidate prints as it arrives, up to the kept size.
            known: fingerprints of candidates that have been timed; one that runs the same code on a GPU is not
                timed again, and has no time.
            on_waiting: is told what timing waits for when that takes a while, and an empty text when it goes on.

        Raises:
            TaskError, MachineError: judge or nursery had to be started again and could not be.
        """
        started = time.monotonic()
        async with self._crowd.place() as place:
            evaluation = await self._evaluate(source, bar, known, on_log, on_waiting)
        if place.crowded and _lacks_device_memory(evaluation, self.facts):
            # What a neighbour has taken is not the candidate's fault.
            async with self._crowd.place(alone=True):
                evaluation = await self._evaluate(source, bar, known, on_log, on_waiting)
        return replace(evaluation, seconds=time.monotonic() - started)

    async def _evaluate(
        self,
        source: str,
        bar: Bar | None,
        known: Collection[str],
        on_log: Callable[[str], None] | None,
        on_waiting: Callable[[str], None],
    ) -> Evaluation:
        reason = ""
        for _ in range(_ATTEMPTS):
            try:
                crew = await self._intact_crew()

                def compared(case: int, found: Message, crew: Crew = crew) -> None:
                    crew.ready["cases"][case]["compared"] |= found
                    self.facts = self._facts_of(crew)
                    self._on_facts(self.facts)

                told = Told(on_log, on_waiting, compared)
                contest = Contest(crew, self.settings, self._present_facts, source, told, self._interpreter)
                return await contest.run(bar, known)
            except (CrewBroken, DiskFailed) as error:
                reason = str(error)
        return verdicts.infrastructure(reason, 0.0)


def _lacks_device_memory(evaluation: Evaluation, facts: TaskFacts | None) -> bool:
    """Whether a GPU had no memory left, for the candidate or for the judge of it."""
    if facts is None or facts.kind is not MeasurementKind.MEASURED:
        return False
    if evaluation.verdict is Verdict.INFRASTRUCTURE_ERROR:
        return "out of memory" in evaluation.reason.lower()
    return evaluation.verdict is Verdict.OUT_OF_MEMORY
