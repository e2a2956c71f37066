"""Judges candidates of one task on one device: the engine's only door to the judge's processes.

Owns every deadline and kill. Runs on asyncio and loads no torch; several candidates may be judged at once.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from engine.judging import second_opinion, verdicts
from engine.judging.crew import Crew, CrewBroken, Seat
from engine.judging.facts import TaskFacts, case_facts
from engine.judging.modelling import Fault, Modelled, model
from engine.judging.output import Output
from engine.judging.settings import JudgeSettings
from engine.judging.verdicts import Given
from engine.judging.wire import Message
from engine.records import BaselineKernel, Evaluation, MeasurementKind, Task, Verdict
from engine.tasks.catalogue import TaskError

_ATTEMPTS = 2
"""A crew that breaks under a candidate is replaced once before the candidate is given back unjudged."""

_FINDINGS_TIMEOUT_S = 30.0
"""How long the judge may take to say what it found after a contestant is gone."""


class Evaluator:
    """One task on one device. Use it as `async with Evaluator(task, settings) as evaluator`."""

    def __init__(self, task: Task, settings: JudgeSettings, own: Sequence[BaselineKernel] = ()) -> None:
        """Takes the task, how to judge, and people's own kernels to compare candidates with."""
        self.task = task
        self.settings = settings
        self._own = tuple(own)
        self.facts: TaskFacts | None = None
        self._crew: Crew | None = None
        self._crew_lock = asyncio.Lock()
        self._interpreter: Evaluator | None = None
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
                crew = Crew(self.task, self.settings)
                await crew.open()
                self._crew = crew
                self.facts = self._facts_of(crew)
                small = second_opinion.small_task(self.task)
                if crew.device != "cpu" and self.settings.second_opinion and small and self._interpreter is None:
                    self._interpreter = Evaluator(small, second_opinion.settings_for(self.settings))
                for kernel in self._own:
                    self.facts = await self._with_own(crew, self.facts, kernel)
            return self._crew

    async def _with_own(self, crew: Crew, facts: TaskFacts, kernel: BaselineKernel) -> TaskFacts:
        """The facts with one of people's own kernels among the baselines.

        Raises:
            TaskError: the kernel is not right, or has no time.
        """
        evaluation = await _Contest(crew, self.settings, facts, kernel.source, None).run(time.monotonic())
        if not evaluation.correct:
            raise TaskError(
                f"the baseline {kernel.name} is not correct for the task {self.task.name}: {evaluation.reason}; "
                "compare with a kernel that is"
            )
        timed = [case.measurement for case in evaluation.cases if case.measurement is not None]
        if len(timed) < len(facts.cases):
            raise TaskError(f"the baseline {kernel.name} has no time: {evaluation.reason}")
        cases = tuple(
            case.with_baseline(kernel.name, measurement.time_us)
            for case, measurement in zip(facts.cases, timed, strict=True)
        )
        return replace(facts, cases=cases, own=(*facts.own, kernel.name))

    def _facts_of(self, crew: Crew) -> TaskFacts:
        modelled = crew.device == "cpu"
        toolchain = dict(crew.toolchain) | dict(crew.ready["toolchain"])
        if modelled:
            toolchain["arch"] = self.settings.arch
        return TaskFacts(
            device=f"cpu (modelling {self.settings.arch})" if modelled else str(crew.ready["name"]),
            toolchain=toolchain,
            kind=MeasurementKind.MODELLED if modelled else MeasurementKind.MEASURED,
            cases=tuple(
                case_facts(case, self.settings.arch, self.settings.lowest_tier) for case in crew.ready["cases"]
            ),
            notes=tuple(case["problem"] for case in crew.ready["cases"] if case["problem"]),
        )

    async def evaluate(
        self, source: str, *, on_log: Callable[[str], None] | None = None, known: Collection[str] = ()
    ) -> Evaluation:
        """Judges one candidate.

        Whatever the candidate does becomes a verdict; failures of the machine become
        `infrastructure_error`. Cancelling kills the candidate's process.

        Args:
            source: the candidate's module text.
            on_log: is handed what the candidate prints as it arrives, up to the kept size.
            known: fingerprints of candidates that have been timed; one that runs the same code on a GPU is not
                timed again, and has no time.

        Raises:
            TaskError, MachineError: judge or nursery had to be started again and could not be.
        """
        started = time.monotonic()
        reason = ""
        for _ in range(_ATTEMPTS):
            try:
                crew = await self._intact_crew()
                assert self.facts is not None
                contest = _Contest(crew, self.settings, self.facts, source, on_log, known, self._interpreter)
                return await contest.run(started)
            except CrewBroken as error:
                reason = str(error)
        return verdicts.infrastructure(reason, time.monotonic() - started)


@dataclass(slots=True)
class _Deadline:
    """Seconds that a candidate has left; the clock stands while the candidate waits for the device."""

    left_s: float
    running_since: float | None = field(default_factory=time.monotonic)

    def left(self) -> float | None:
        """Seconds left now; None while the clock stands."""
        if self.running_since is None:
            return None
        return max(0.0, self.left_s - (time.monotonic() - self.running_since))

    def pause(self) -> None:
        """Stops the clock."""
        left = self.left()
        if left is not None:
            self.left_s, self.running_since = left, None

    def go_on(self) -> None:
        """Starts the clock again."""
        if self.running_since is None:
            self.running_since = time.monotonic()


@dataclass(slots=True)
class _Stages:
    """Seconds by stage; time spent waiting for the device counts as `waiting`."""

    seconds: dict[str, float] = field(default_factory=dict)
    current: str = "start"
    since: float = field(default_factory=time.monotonic)

    def enter(self, stage: str) -> None:
        """A stage begins, and the one before it ends."""
        now = time.monotonic()
        self.seconds[self.current] = round(self.seconds.get(self.current, 0.0) + now - self.since, 3)
        self.current, self.since = stage, now


class _Contest:
    """One candidate's way through the crew."""

    def __init__(
        self,
        crew: Crew,
        settings: JudgeSettings,
        facts: TaskFacts,
        source: str,
        on_log: Callable[[str], None] | None,
        known: Collection[str] = (),
        interpreter: Evaluator | None = None,
    ) -> None:
        self._crew = crew
        self._settings = settings
        self._facts = facts
        self._source = source
        self._on_log = on_log
        self._known = known
        self._timed_out = False
        self._deadline = _Deadline(settings.timeout_s)
        self._modelling: dict[int, asyncio.Task[Modelled]] = {}
        self._stages = _Stages()
        self._interpreter = interpreter
        self._opinion: asyncio.Future[Evaluation | None] | None = None

    async def run(self, started: float) -> Evaluation:
        """The evaluation. Raises CrewBroken when a process of the crew fails."""
        seat = self._crew.contestant()
        folder = self._crew.folder / f"candidate-{seat.number}"
        output = Output(self._settings.max_output_bytes, self._on_log)
        try:
            path = await self._enter(seat, folder, output)
            found = await self._crew.while_intact(self._follow(seat, path))
            code = await self._crew.while_intact(self._crew.spawn(self._crew.end(seat)))
            verdict = self._verdict(found, code)
            self._stages.enter("model")
            modelled = await self._crew.while_intact(self._modelled(verdict))
            self._stages.enter("end")
            seconds = time.monotonic() - started
            judged = verdicts.evaluation(
                found, verdict, modelled, self._facts, self._settings, output.finish(), seconds
            )
            if judged.correct:
                await asyncio.to_thread(self._crew.compiled.keep, self._source, folder)
            if judged.correct and self._opinion is not None:
                judged = second_opinion.joined(judged, await self._opinion)
            return replace(judged, stage_seconds=self._stages.seconds)
        finally:
            if self._opinion is not None:
                self._opinion.cancel()
            for task in self._modelling.values():
                task.cancel()
            output.finish()
            # Also when cancelled: the contestant is killed and its files go, beside the caller.
            self._crew.spawn(self._leave(seat, folder))

    async def _leave(self, seat: Seat, folder: Path) -> None:
        await asyncio.gather(*self._modelling.values(), return_exceptions=True)
        await self._crew.end(seat)
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _enter(self, seat: Seat, folder: Path, output: Output) -> Path:
        """Writes the candidate's file, forks its contestant, and introduces it to the judge."""
        folder.mkdir(mode=0o700)
        path = folder / "candidate.py"
        path.write_text(self._source, encoding="utf-8", errors="surrogatepass")
        await asyncio.to_thread(self._crew.compiled.lend, self._source, folder)
        judge_end, contestant_end = socket.socketpair()
        try:
            await self._crew.fork(seat, path, contestant_end, output.writer)
            await self._crew.introduce(seat, judge_end, self._known)
        finally:
            judge_end.close()
            contestant_end.close()
            output.started()
        return path

    async def _follow(self, seat: Seat, path: Path) -> Message:
        """Waits for the judge's verdict; kills the contestant at its deadline."""
        stage = "start"
        while True:
            try:
                async with asyncio.timeout(_FINDINGS_TIMEOUT_S if self._timed_out else self._deadline.left()):
                    message = await seat.inbox.get()
            except TimeoutError:
                if self._timed_out:
                    raise CrewBroken("the judge did not notice that a candidate had ended") from None
                self._timed_out = True
                await self._crew.kill(seat)
                continue
            if message["event"] == "verdict":
                return message
            if message["event"] == "trace" and self._settings.modelled:
                work = model(
                    self._crew,
                    path,
                    self._source,
                    message,
                    self._crew.ready["cases"][message["case"]]["bound"],
                    self._settings.arch,
                )
                self._modelling[message["case"]] = self._crew.spawn(work)
            elif message["event"] == "stage":
                stage = message["stage"]
                self._stages.enter(stage)
                if stage == "time" and self._interpreter is not None and self._opinion is None:
                    # A candidate that got so far is most likely correct; the processors are idle while it is timed.
                    self._opinion = asyncio.ensure_future(second_opinion.asked(self._interpreter, self._source))
            elif message["event"] == "waiting":
                self._deadline.pause()
                self._stages.enter("waiting")
            elif message["event"] == "goes_on":
                self._deadline.go_on()
                self._stages.enter(stage)

    async def _modelled(self, verdict: Given) -> dict[int, Modelled]:
        """The outcome of compiling and modelling each case; a candidate that failed has none."""
        if verdict.verdict is not Verdict.CORRECT or not self._modelling:
            return {}
        try:
            async with asyncio.timeout(self._deadline.left()):
                await asyncio.gather(*self._modelling.values())
        except TimeoutError:
            reason = f"the candidate did not compile within {self._settings.timeout_s:g} s"
            return {0: Modelled(fault=Fault(Verdict.TIMEOUT, reason))}
        return {case: task.result() for case, task in self._modelling.items()}

    def _verdict(self, found: Message, code: int | None) -> Given:
        stage = found["cases"][-1]["stage"] if found["cases"] else "load"
        if found["verdict"] is not None:
            return Given(Verdict(found["verdict"]), found["reason"], stage, found["detail"])
        if self._timed_out:
            return verdicts.timed_out(self._settings.timeout_s, stage)
        return verdicts.ended_by_itself(code, stage)
