"""One candidate's way through the crew: in one process, and in fresh ones when it may be best.

Owns the deadlines and kills of its contestants.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

from engine.judging import confirmation, neighbours, second_opinion, verdicts
from engine.judging.confirmation import Bar
from engine.judging.crew import Crew, CrewBroken, Seat
from engine.judging.facts import TaskFacts
from engine.judging.modelling import Fault, Modelled, model
from engine.judging.nvml import now_s
from engine.judging.output import Output
from engine.judging.second_opinion import Interpreter
from engine.judging.settings import JudgeSettings
from engine.judging.verdicts import Given
from engine.judging.wire import Message
from engine.records import Evaluation, MeasurementKind, Verdict

_FINDINGS_TIMEOUT_S = 30.0
"""How long the judge may take to say what it found after a contestant is gone."""

_NOTICE_S = 1.0
"""How long a wait for the device lasts before anybody is told of it."""


class DiskFailed(Exception):
    """A candidate's files cannot be written; the message says why. Never a candidate's fault."""


@dataclass(frozen=True, slots=True)
class Told:
    """Who is told of what happens on the way.

    Attributes:
        log: is handed what the candidate prints as it arrives.
        waiting: is told what timing waits for when that takes a while, and an empty text when it goes on.
        compared: is told the case and what the judge has newly found of its baselines.
    """

    log: Callable[[str], None] | None = None
    waiting: Callable[[str], None] = lambda what: None
    compared: Callable[[int, Message], None] = lambda case, found: None


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

    begins: Callable[[str], None]
    seconds: dict[str, float] = field(default_factory=dict)
    current: str = "start"
    since: float = field(default_factory=time.monotonic)

    def enter(self, stage: str) -> None:
        """A stage begins, and the one before it ends."""
        now = time.monotonic()
        self.seconds[self.current] = round(self.seconds.get(self.current, 0.0) + now - self.since, 3)
        self.current, self.since = stage, now
        self.begins(stage)


@dataclass(frozen=True, slots=True)
class _Visit:
    """What came of one contestant."""

    found: Message
    given: Given
    modelled: dict[int, Modelled]
    log: str


class Contest:
    """One candidate: `run` gives its evaluation."""

    def __init__(
        self,
        crew: Crew,
        settings: JudgeSettings,
        facts: Callable[[], TaskFacts],
        source: str,
        told: Told,
        interpreter: Interpreter | None = None,
    ) -> None:
        """Takes where to judge and how.

        Args:
            crew: the processes.
            settings: the run's settings.
            facts: gives what is known of the task at any time.
            source: the candidate's text.
            told: who is told of what happens.
            interpreter: gives a second opinion on what a GPU finds correct.
        """
        self._crew = crew
        self._settings = settings
        self._facts = facts
        self._source = source
        self._told = told
        self._interpreter = interpreter
        self._opinion: asyncio.Future[Evaluation | None] | None = None
        self._stages = _Stages(self._stage_begins)

    async def run(self, bar: Bar | None = None, known: Collection[str] = ()) -> Evaluation:
        """The evaluation; a candidate that clears the bar is timed again.

        One whose fingerprint is `known` is not timed on a GPU. Raises CrewBroken or DiskFailed.
        """
        started = time.monotonic()
        best = dict(bar.cases) if bar is not None else None
        try:
            visit = await self._visit({"known": sorted(known), "best": best, "confirms": None})
            evaluation = self._evaluation(visit, started)
            if evaluation.correct and self._opinion is not None:
                # What it is certain of may be reason enough not to time the candidate again.
                evaluation = second_opinion.joined(evaluation, await self._opinion)
            if bar is not None and self._facts().kind is MeasurementKind.MEASURED and bar.cleared_by(evaluation):
                evaluation = await self._confirmed(bar, visit, started)
                if evaluation.correct and self._opinion is not None:
                    evaluation = second_opinion.joined(evaluation, await self._opinion)
            return replace(evaluation, stage_seconds=self._stages.seconds)
        finally:
            if self._opinion is not None:
                self._opinion.cancel()

    def _stage_begins(self, stage: str) -> None:
        if stage == "time" and self._interpreter is not None and self._opinion is None:
            # A candidate that got so far is most likely correct; the processors are idle while it is timed.
            self._opinion = asyncio.ensure_future(second_opinion.asked(self._interpreter, self._source))

    async def _confirmed(self, bar: Bar, first: _Visit, started: float) -> Evaluation:
        """The evaluation by what fresh processes find, or by the fault of the first one that fails."""
        sessions: list[Message] = []
        asked = confirmation.request(first.found)
        while True:
            visit = await self._visit({"known": [], "best": {}, "confirms": asked})
            if visit.given.verdict is not Verdict.CORRECT:
                reason = f"timed again in a fresh process: {visit.given.reason}"
                return self._evaluation(replace(first, given=replace(visit.given, reason=reason)), started)
            sessions.append(visit.found)
            found = confirmation.merged(first.found, sessions)
            given = replace(first.given, reason=found["reason"])
            evaluation = self._evaluation(replace(first, found=found, given=given), started)
            if len(sessions) == confirmation.SESSIONS or not bar.cleared_by(evaluation):
                return evaluation

    def _evaluation(self, visit: _Visit, started: float) -> Evaluation:
        seconds = time.monotonic() - started
        facts = self._facts()
        return verdicts.evaluation(visit.found, visit.given, visit.modelled, facts, self._settings, visit.log, seconds)

    async def _visit(self, request: Message) -> _Visit:
        """Sends the candidate through one contestant. Raises CrewBroken when a process of the crew fails."""
        seat = self._crew.contestant()
        return await _Contestant(self._crew, self._settings, self._source, self._told, self._stages, seat).run(request)


class _Contestant:
    """One process that a candidate runs in, from the fork to its end."""

    def __init__(
        self, crew: Crew, settings: JudgeSettings, source: str, told: Told, stages: _Stages, seat: Seat
    ) -> None:
        self._crew = crew
        self._settings = settings
        self._source = source
        self._told = told
        self._stages = stages
        self._seat = seat
        self._folder = crew.folder / f"candidate-{seat.number}"
        self._path = self._folder / "candidate.py"
        self._timed_out = False
        self._deadline = _Deadline(settings.timeout_s)
        self._modelling: dict[int, asyncio.Task[Modelled]] = {}
        self._notice: asyncio.TimerHandle | None = None
        self._noticed = False
        self._alone_since: float | None = None

    async def run(self, request: Message) -> _Visit:
        output = Output(self._settings.max_output_bytes, self._told.log)
        try:
            await self._enter(output, request)
            found = await self._crew.while_intact(self._follow())
            code = await self._crew.while_intact(self._crew.spawn(self._crew.end(self._seat)))
            given = self._given(found, code)
            self._stages.enter("model")
            modelled = await self._crew.while_intact(self._modelled(given))
            self._stages.enter("end")
            if given.verdict is Verdict.CORRECT:
                await asyncio.to_thread(self._crew.compiled.keep, self._source, self._folder)
            return _Visit(found, given, modelled, output.finish())
        finally:
            for task in self._modelling.values():
                task.cancel()
            self._wait_ends()
            output.finish()
            # Also when cancelled: the contestant is killed and its files go, beside the caller.
            self._crew.spawn(self._leave())

    async def _leave(self) -> None:
        await asyncio.gather(*self._modelling.values(), return_exceptions=True)
        await self._crew.end(self._seat)
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _enter(self, output: Output, request: Message) -> None:
        """Writes the candidate's file, forks its contestant, and introduces it to the judge."""
        try:
            self._folder.mkdir(mode=0o700)
            self._path.write_text(self._source, encoding="utf-8", errors="surrogatepass")
            await asyncio.to_thread(self._crew.compiled.lend, self._source, self._folder)
        except OSError as error:
            raise DiskFailed(f"the candidate's files cannot be written: {error.strerror}") from error
        judge_end, contestant_end = socket.socketpair()
        try:
            await self._crew.fork(self._seat, self._path, contestant_end, output.writer)
            await self._crew.introduce(self._seat, judge_end, request)
        finally:
            judge_end.close()
            contestant_end.close()
            output.started()

    async def _follow(self) -> Message:
        """Waits for the judge's verdict; kills the contestant at its deadline."""
        stage = "start"
        while True:
            try:
                async with asyncio.timeout(_FINDINGS_TIMEOUT_S if self._timed_out else self._deadline.left()):
                    message = await self._seat.inbox.get()
            except TimeoutError:
                if self._timed_out:
                    raise CrewBroken("the judge did not notice that a candidate had ended") from None
                self._timed_out = True
                await self._crew.kill(self._seat)
                continue
            match message["event"]:
                case "verdict":
                    self._note_neighbours(message)
                    return message
                case "trace" if self._settings.modelled:
                    self._model(message)
                case "compared":
                    self._told.compared(message["case"], message["compared"])
                case "stage":
                    stage = message["stage"]
                    self._stages.enter(stage)
                case "waiting":
                    self._wait_begins(message["for"], notable=not message["ours"])
                case "goes_on":
                    self._wait_ends()
                    self._stages.enter(stage)
                case "alone":
                    await self._crew.quiet(self._wait_for_neighbours)
                    self._wait_ends()
                    self._stages.enter(stage)
                    self._alone_since = self._alone_since or now_s()
                    await self._crew.allow(self._seat.number)

    # waiting for the device

    def _wait_begins(self, what: str, notable: bool = True) -> None:
        self._deadline.pause()
        self._stages.enter("waiting")
        if notable and self._notice is None:
            self._notice = asyncio.get_running_loop().call_later(_NOTICE_S, self._tell, what)

    def _wait_for_neighbours(self, whom: str) -> None:
        if whom:
            self._wait_ends()
            self._wait_begins(whom)

    def _tell(self, what: str) -> None:
        self._noticed = True
        self._told.waiting(what)

    def _wait_ends(self) -> None:
        self._deadline.go_on()
        if self._notice is not None:
            self._notice.cancel()
            self._notice = None
        if self._noticed:
            self._noticed = False
            self._told.waiting("")

    def _note_neighbours(self, found: Message) -> None:
        """Writes down who else computed on the device since timing began."""
        if self._alone_since is None or self._crew.neighbours is None:
            return
        others = self._crew.neighbours.active(self._alone_since)
        for case in found["cases"]:
            if others and case["measurement"] is not None:
                detail: dict[str, Any] = case["measurement"]["detail"]
                detail["others"] = neighbours.to_json(others)
                detail["notes"] = [*detail["notes"], *(f"while it was timed, {other}" for other in others)]

    # the model, where there is no GPU

    def _model(self, message: Message) -> None:
        bound = self._crew.ready["cases"][message["case"]]["bound"]
        work = model(self._crew, self._path, self._source, message, bound, self._settings.arch)
        self._modelling[message["case"]] = self._crew.spawn(work)

    async def _modelled(self, given: Given) -> dict[int, Modelled]:
        """The outcome of compiling and modelling each case; a candidate that failed has none."""
        if given.verdict is not Verdict.CORRECT or not self._modelling:
            return {}
        try:
            async with asyncio.timeout(self._deadline.left()):
                await asyncio.gather(*self._modelling.values())
        except TimeoutError:
            reason = f"the candidate did not compile within {self._settings.timeout_s:g} s"
            return {0: Modelled(fault=Fault(Verdict.TIMEOUT, reason))}
        return {case: task.result() for case, task in self._modelling.items()}

    def _given(self, found: Message, code: int | None) -> Given:
        stage = found["cases"][-1]["stage"] if found["cases"] else "load"
        if found["verdict"] is not None:
            return Given(Verdict(found["verdict"]), found["reason"], stage, found["detail"])
        if self._timed_out:
            return verdicts.timed_out(self._settings.timeout_s, stage)
        if code is None:
            raise CrewBroken("the nursery did not say how a candidate ended")
        return verdicts.ended_by_itself(code, stage)
