"""The candidates before the judge: which is judged next, on which device, and what becomes of the answer."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from engine.judging.confirmation import Bar
from engine.judging.facts import MachineError
from engine.loop.picture import Picture
from engine.records import Candidate, CandidateState, Evaluation, ProposerKind, Verdict
from engine.search.queue import expected_reward
from engine.search.reward import reward
from engine.settings import RunSettings
from engine.store.run_store import RunStore
from engine.tasks.catalogue import TaskError

MAX_ATTEMPTS = 3
"""How often the judge may fail on a candidate through no fault of the candidate's."""

MAX_FAULTS_IN_A_ROW = 3
"""On how many candidates in a row the machine may fail before the search ends."""


class Judge(Protocol):
    """The part of an evaluator that the loop needs: one device."""

    async def evaluate(
        self, source: str, *, known: Collection[str], bar: Bar, on_waiting: Callable[[str], None]
    ) -> Evaluation:
        """Judges one candidate's text, without a time if its code is `known`; cancelling kills what runs.

        It is timed the more carefully the nearer it comes to the bar. `on_waiting` is told what timing waits for when
        that takes a while, and an empty text when it goes on.
        """


class EvaluationTasks:
    """The evaluations under way, spread over the devices; each device takes `workers` at a time."""

    def __init__(self, store: RunStore, judges: Sequence[Judge], settings: RunSettings) -> None:
        self._store = store
        self._judges = list(judges)
        self._settings = settings
        self._running: dict[int, tuple[asyncio.Task[None], Judge]] = {}
        self._faults = 0
        self._fingerprints: set[str] | None = None

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """What is running now."""
        return [task for task, _ in self._running.values()]

    @property
    def devices(self) -> int:
        """How many devices judge."""
        return len(self._judges)

    def start(self, picture: Picture) -> None:
        """Gives waiting candidates to free devices, the most promising first; what people want comes before all."""
        for candidate in self._queue(picture):
            judge = self._free_judge()
            if judge is None:
                return
            if self._store.claim(candidate.number):
                task = asyncio.create_task(self._evaluate(candidate.number, judge, again=candidate.retest))
                self._running[candidate.number] = (task, judge)

    def _queue(self, picture: Picture) -> list[Candidate]:
        waiting = picture.in_states(CandidateState.QUEUED)
        waiting += [picture.candidates[number] for number in sorted(picture.retests - self._running.keys())]
        return sorted(
            waiting,
            key=lambda candidate: (
                candidate.proposer is not ProposerKind.HUMAN and not candidate.retest,
                -expected_reward(picture.snapshot, candidate.number),
                candidate.number,
            ),
        )

    def _free_judge(self) -> Judge | None:
        """The device with the least to do, None if each has enough."""
        busy = [sum(at is judge for _, at in self._running.values()) for judge in self._judges]
        least = min(busy)
        return self._judges[busy.index(least)] if least < self._settings.workers else None

    async def _evaluate(self, number: int, judge: Judge, *, again: bool) -> None:
        source = self._store.source(number)
        try:
            # A person who wants a candidate judged again wants its time.
            evaluation = await judge.evaluate(
                source,
                known=() if again else self._timed(),
                bar=self._bar(besides=number),
                on_waiting=lambda what: self._store.device_awaited(number, what),
            )
        except MachineError as error:
            if len(self._judges) == 1 or judge not in self._judges:
                raise
            self._judges.remove(judge)
            self._store.note(f"a device is lost, the others go on: {error}")
            self._store.requeue(number, str(error))
            return
        except TaskError:
            raise
        except Exception as error:
            # One candidate that our own side cannot deal with must not end the search for all others.
            traceback.print_exc()
            reason = f"judging failed: {type(error).__name__}: {error}"
            evaluation = Evaluation(Verdict.INFRASTRUCTURE_ERROR, "load", reason)
        if evaluation.verdict is Verdict.INFRASTRUCTURE_ERROR:
            self._machine_failed(number, evaluation, again)
            return
        self._faults = 0
        speedup = evaluation.speedup.get("eager")
        value = reward(evaluation.verdict, speedup, self._bound_speedup(), self._settings.policy.reward)
        kept = self._store.evaluated(number, evaluation, speedup, value)
        if again:
            # It may have lost the time that its code was known by.
            self._fingerprints = None
        elif kept and evaluation.correct and evaluation.time_us is not None and evaluation.fingerprint:
            self._timed().add(evaluation.fingerprint)

    def _timed(self) -> set[str]:
        """The fingerprints of the candidates that have a time."""
        if self._fingerprints is None:
            self._fingerprints = self._store.fingerprints()
        return self._fingerprints

    def _machine_failed(self, number: int, evaluation: Evaluation, again: bool) -> None:
        """Tries again a few times, then lets the candidate be; ends the search if that happens again and again."""
        if self._store.attempts(number) < MAX_ATTEMPTS:
            self._store.note(f"the machine failed, {number} is tried again: {evaluation.reason}", number)
            self._store.requeue(number, evaluation.reason)
            return
        if again:
            self._store.give_up_retest(number, evaluation.reason)
        else:
            self._store.evaluated(number, evaluation, None, None)
        self._faults += 1
        if self._faults >= MAX_FAULTS_IN_A_ROW:
            raise MachineError(
                f"this machine could not judge {self._faults} candidates in a row, {MAX_ATTEMPTS} times each; "
                f"the last time: {evaluation.reason}"
            )

    def _bar(self, besides: int) -> Bar:
        """What a candidate must clear to become best, as things stand; a best one that is judged again clears any."""
        allow = frozenset(map(str, self._settings.allow))
        best = self._store.run().best
        if best is None or best == besides:
            return Bar(allow=allow)
        (candidate,) = self._store.some_candidates([best])
        return Bar(candidate.time_us, self._store.best_times(), allow)

    def _bound_speedup(self) -> float | None:
        baselines = self._store.run().facts.get("baselines", {})
        eager, bound = baselines.get("eager"), baselines.get("bound")
        return eager / bound if eager and bound else None

    def collect(self) -> None:
        """Lets go of finished work; what went wrong in it ends the engine."""
        for number in [number for number, (task, _) in self._running.items() if task.done()]:
            task, _ = self._running.pop(number)
            if not task.cancelled():
                task.result()

    def taken_away(self, picture: Picture) -> list[asyncio.Task[None]]:
        """The running evaluations whose candidate a person has pruned meanwhile."""
        return [
            task
            for number, (task, _) in self._running.items()
            if picture.candidates[number].state is not CandidateState.EVALUATING
            and not (picture.candidates[number].retest and not picture.candidates[number].pruned)
            and not task.done()
        ]
