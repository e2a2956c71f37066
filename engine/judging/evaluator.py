"""Judges candidates of one task on one device: the engine's only door to the judge's processes.

Owns every deadline and kill. Runs on asyncio and loads no torch; several candidates may be judged at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from engine.judging import verdicts
from engine.judging.crew import Crew, CrewBroken, Seat
from engine.judging.facts import TaskFacts, case_facts
from engine.judging.output import Output
from engine.judging.settings import JudgeSettings
from engine.judging.wire import Message
from engine.records import CaseResult, Evaluation, MeasurementKind, Task, Verdict

_ATTEMPTS = 2
"""A crew that breaks under a candidate is replaced once before the candidate is given back unjudged."""

_FINDINGS_TIMEOUT_S = 30.0
"""How long the judge may take to say what it found after a contestant is gone."""


class Evaluator:
    """One task on one device. Use it as `async with Evaluator(task, settings) as evaluator`."""

    def __init__(self, task: Task, settings: JudgeSettings) -> None:
        self.task = task
        self.settings = settings
        self.facts: TaskFacts | None = None
        self._crew: Crew | None = None
        self._crew_lock = asyncio.Lock()
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
            return self._crew

    def _facts_of(self, crew: Crew) -> TaskFacts:
        modelled = crew.device == "cpu"
        toolchain = dict(crew.toolchain)
        if modelled:
            toolchain["arch"] = self.settings.arch
        return TaskFacts(
            device=f"cpu (modelling {self.settings.arch})" if modelled else str(crew.ready["device"]),
            toolchain=toolchain,
            kind=MeasurementKind.MODELLED if modelled else MeasurementKind.MEASURED,
            cases=tuple(case_facts(case) for case in crew.ready["cases"]),
        )

    async def evaluate(self, source: str, *, on_log: Callable[[str], None] | None = None) -> Evaluation:
        """Judges one candidate.

        Whatever the candidate does becomes a verdict; failures of the machine become
        `infrastructure_error`. Cancelling kills the candidate's process.

        Args:
            source: the candidate's module text.
            on_log: is handed what the candidate prints as it arrives, up to the kept size.

        Raises:
            TaskError, MachineError: judge or nursery had to be started again and could not be.
        """
        started = time.monotonic()
        reason = ""
        for _ in range(_ATTEMPTS):
            try:
                crew = await self._intact_crew()
                contest = _Contest(crew, self, source, on_log)
                return await contest.run(started)
            except CrewBroken as error:
                reason = str(error)
        return verdicts.infrastructure(reason, time.monotonic() - started)


@dataclass(slots=True)
class _Deadline:
    """Seconds that a candidate has left; the clock stands while the candidate waits for the device."""

    left_s: float
    running_since: float | None = field(default_factory=time.monotonic)

    def left(self) -> float:
        """Seconds left now."""
        spent = time.monotonic() - self.running_since if self.running_since is not None else 0.0
        return max(0.0, self.left_s - spent)

    def pause(self) -> None:
        """Stops the clock."""
        self.left_s, self.running_since = self.left(), None

    def go_on(self) -> None:
        """Starts the clock again."""
        if self.running_since is None:
            self.running_since = time.monotonic()


class _Contest:
    """One candidate's way through the crew."""

    def __init__(self, crew: Crew, evaluator: Evaluator, source: str, on_log: Callable[[str], None] | None) -> None:
        self._crew = crew
        self._evaluator = evaluator
        self._settings = evaluator.settings
        self._source = source
        self._on_log = on_log
        self._stage = "load"
        self._timed_out = False
        self._compiling: asyncio.Task[Any] | None = None

    async def run(self, started: float) -> Evaluation:
        """The evaluation. Raises CrewBroken when a process of the crew fails."""
        seat = self._crew.seat()
        folder = self._crew.folder / f"candidate-{seat.number}"
        output = Output(self._settings.max_output_bytes, self._on_log)
        try:
            await self._enter(seat, folder, output)
            verdict = await self._crew.while_intact(self._follow(seat))
            code = await asyncio.shield(self._crew.spawn(self._crew.end(seat)))
            self._crew_intact()
            evaluation = await self._evaluation(verdict, code, output.finish(), started)
        finally:
            output.finish()
            # Also when cancelled: the contestant is killed and its files go, beside the caller.
            self._crew.spawn(self._leave(seat, folder))
        return evaluation

    def _crew_intact(self) -> None:
        if self._crew.broken.done():
            self._crew.broken.result()

    async def _leave(self, seat: Seat, folder: Path) -> None:
        with contextlib.suppress(CrewBroken):
            await self._crew.end(seat)
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _enter(self, seat: Seat, folder: Path, output: Output) -> None:
        """Writes the candidate's file, forks its contestant, and introduces it to the judge."""
        folder.mkdir(mode=0o700)
        path = folder / "candidate.py"
        path.write_text(self._source, encoding="utf-8", errors="surrogatepass")
        judge_end, contestant_end = socket.socketpair()
        try:
            await self._crew.fork(seat, path, output.writer, judge_end, contestant_end)
        finally:
            judge_end.close()
            contestant_end.close()
            output.started()

    async def _follow(self, seat: Seat) -> Message:
        """Waits for the judge's verdict; kills the contestant at its deadline."""
        deadline = _Deadline(self._settings.timeout_s)
        while True:
            try:
                async with asyncio.timeout(_FINDINGS_TIMEOUT_S if self._timed_out else deadline.left()):
                    message = await seat.inbox.get()
            except TimeoutError:
                if self._timed_out:
                    raise CrewBroken("the judge did not notice that a candidate had ended") from None
                self._timed_out = True
                await self._crew.kill(seat)
                continue
            if message["event"] == "verdict":
                return message
            self._heard(message, deadline)

    def _heard(self, message: Message, deadline: _Deadline) -> None:
        if message["event"] == "stage":
            self._stage = message["stage"]
        elif message["event"] == "waiting":
            deadline.pause()
        elif message["event"] == "goes_on":
            deadline.go_on()

    async def _evaluation(self, found: Message, code: int | None, log: str, started: float) -> Evaluation:
        verdict, reason = self._verdict(found, code)
        facts = self._evaluator.facts
        assert facts is not None
        if found.get("detail"):
            log = f"{log}\n{found['detail']}" if log else str(found["detail"])
        cases = tuple(
            CaseResult(case.name, case.weight, verdict, None, case.baselines, case.bound_us) for case in facts.cases
        )
        return Evaluation(
            verdict=verdict,
            stage=found["stage"],
            reason=reason,
            labels=tuple(found["labels"]),
            numerics=verdicts.numerics(found["numerics"]),
            checks=verdicts.checks(found["checks"]),
            cases=cases,
            device=facts.device,
            toolchain=facts.toolchain,
            log=log,
            seconds=time.monotonic() - started,
        )

    def _verdict(self, found: Message, code: int | None) -> tuple[Verdict, str]:
        if found["verdict"] is not None:
            return Verdict(found["verdict"]), found["reason"]
        if self._timed_out:
            return verdicts.timed_out(self._settings.timeout_s, found["stage"])
        return verdicts.ended_by_itself(code, found["stage"])
