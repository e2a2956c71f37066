"""Measured time on a GPU: rounds of alternating candidate and eager blocks, each in its own process.

Iteration counts come from eager. Every block works on fresh contents, the outputs of a call that the
candidate cannot know are checked, and the times it reports are held against the judge's own wall clock.
Candidate and baselines share precision flags, mode and cache state.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from engine.judging.nvml import NvmlDevice
from engine.judging.ratios import Ratio
from engine.judging.settings import JudgeSettings
from engine.judging.statistics import interval_95, median
from engine.judging.workers import autotuning
from engine.judging.workers.answerer import Answerer, Fault, Gone
from engine.judging.workers.baselines import MIN_ITERATIONS, Baselines, Compared, Process, mutated, prepare
from engine.judging.workers.contents import Contents, sets_of
from engine.judging.workers.device_lock import DeviceLock, Waiting
from engine.judging.workers.device_state import watching
from engine.judging.workers.exchange import Arena
from engine.judging.workers.reference import Reference
from engine.judging.workers.rounds import FULL, QUICK, Block, Rounds
from engine.judging.workers.trials import Trial

SLOW_BLOCK_US = 100_000.0
"""How long a block of a slow candidate may take, about."""

FAR_BEHIND, FAR_BEHIND_ROUNDS = 2.0, 2
"""A candidate slower than so many times eager gets no more than so many rounds: it cannot become best."""

NEAR_BEST = 1.02
"""Up to how many times the best candidate's time another one is worth the full tempo."""

CONTRADICTION, SLACK_US = 2.0, 50.0
"""A reported time is contradicted when the wall clock finds it longer by this factor and this much more."""

_UNFLUSHED, _FLUSH_SLACK_US = 0.6, 10.0
"""A flush is missing where what surrounds calls takes less than this share of the reference's, and so much less."""

_EMPTY_CALLS, _TRIES = 64, 3

CANDIDATE, REFERENCE = "candidate", "eager"

Arenas = Callable[[Sequence[torch.Tensor]], Arena]
CheckOutputs = Callable[[Trial, list[torch.Tensor]], None]


@dataclass(frozen=True, slots=True)
class Measured:
    """One case of a candidate in one session: microseconds, and speedups against baselines at its tier."""

    time_us: float
    ci95_us: tuple[float, float]
    baselines: dict[str, float]
    peak_bytes: int
    detail: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The measurement as it travels to the engine."""
        return {
            "time_us": self.time_us,
            "ci95_us": list(self.ci95_us),
            "baselines": self.baselines,
            "peak_bytes": self.peak_bytes,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class Contender:
    """A candidate that has been found right in a case, ready to be timed there.

    Attributes:
        answerer: the contestant, built and with an arena for its outputs.
        case: the case's place in the task.
        reference: the case.
        overrides: the case's constants, for baseline processes.
        tier: the candidate's precision tier.
        check: compares what the output arena holds, and what a call left in the inputs that it changes, with the
            truth about a trial; raises Fault.
        arenas: lends memory that the contestant may map.
        best_us: the time of the best candidate so far, in whose neighbourhood the full tempo begins; None never does.
    """

    answerer: Answerer
    case: int
    reference: Reference
    overrides: Mapping[str, Any]
    tier: str
    check: CheckOutputs
    arenas: Arenas
    best_us: float | None


class Clock:
    """Times candidates of one task on one GPU; at most one block runs at a time on the whole host."""

    def __init__(
        self,
        settings: JudgeSettings,
        lock: DeviceLock,
        baselines: Baselines,
        contents: Contents,
        device: NvmlDevice | None,
    ) -> None:
        """Sets the clock up.

        Args:
            settings: mode and cache state of all blocks.
            lock: the device's lock.
            baselines: what candidates are compared with.
            contents: draws what timed calls work on.
            device: tells of clocks and energy; None where nothing does.
        """
        self.baselines = baselines
        self._settings = settings
        self._lock = lock
        self._contents = contents
        self._device = device
        self._order = random.Random(settings.seed)
        self._flush_us: float | None = None

    def measure(self, contender: Contender, waiting: Waiting, alone: Callable[[], None]) -> Measured:
        """Times a candidate.

        Args:
            contender: who, where and against what.
            waiting: is told what is waited for, and an empty text when that is over.
            alone: returns when nobody else computes on the device, or it is no use to wait longer.

        Raises:
            Fault: a timed answer is wrong, or the reported times are contradicted.
            Gone: the contestant ended.
        """
        reference, arenas = contender.reference, contender.arenas
        _, tensors = self._contents.draw(reference)
        sets = sets_of(tensors)
        arena = arenas(tensors * sets)
        arena.write(tensors * sets)
        changed = mutated(reference)
        changes = arenas([tensors[index] for index in changed])
        with self._lock.exclusive(waiting):
            alone()
            waiting("the baselines")
            compared = self.baselines.compare(contender.case, reference, contender.overrides, contender.tier)
            self.baselines.eager(contender.case, reference, contender.overrides, contender.tier)
            waiting("")
            ready = contender.answerer.ask(prepare(self._settings, sets, changed), [arena, changes])
            measured = self._session(contender, arena, changes, compared)
            measured.detail["tuned"] = autotuning.checked(ready.get("tuned"))
            return measured

    def _session(self, contender: Contender, arena: Arena, changes: Arena, compared: Compared) -> Measured:
        answerer, reference = contender.answerer, contender.reference
        eager = self.baselines.eager(contender.case, reference, contender.overrides, contender.tier)
        assert eager.arena is not None
        arenas = [arena, eager.arena]
        warm = answerer.block(MIN_ITERATIONS)
        # A candidate far slower than the reference must not wait for its verdict all day.
        affordable = int(SLOW_BLOCK_US / max(median(warm.times_us), 1.0))
        most = min(self.baselines.iterations(contender.case, contender.tier), max(affordable, MIN_ITERATIONS))
        # The quick tempo takes half as many calls.
        iterations = max(most // 2, MIN_ITERATIONS)
        trials: list[Trial] = []

        def refresh() -> None:
            trials[:] = self._contents.fill(arenas, reference)

        def candidate() -> Block:
            kept = self._order.randrange(iterations)
            with watching(self._device) as observed:
                answered = answerer.block(iterations, keep=kept)
            contender.check(trials[kept % len(trials)], changes.read())
            return Block(median(answered.times_us), answered.peak_bytes, observed.state)

        def against() -> Block:
            with watching(self._device) as observed:
                block = self.baselines.block(eager, iterations)
            return Block(block.time_us, block.peak_bytes, observed.state)

        rounds = Rounds({CANDIDATE: candidate, REFERENCE: against}, refresh, self._order)
        rounds.play(FAR_BEHIND_ROUNDS if median(warm.times_us) > FAR_BEHIND * compared.eager_us else QUICK)
        if contender.best_us is not None and rounds.time_us(CANDIDATE) < NEAR_BEST * contender.best_us:
            iterations = most
            rounds.play(FULL)
        empty_us = self._slope(answerer, max(iterations, _EMPTY_CALLS), calls=False)
        wall_us = self._slope(answerer, iterations, calls=True) - max(empty_us, 0.0)
        self._check_flush(answerer, empty_us, eager)
        time_us = rounds.time_us(CANDIDATE)
        if wall_us > CONTRADICTION * time_us + SLACK_US:
            reason = f"it reports {time_us:.4g} us a call, the judge's own clock finds {wall_us:.4g} us"
            raise Fault("tampered", reason)
        return self._measured(contender, rounds, compared, iterations, wall_us)

    def _measured(
        self, contender: Contender, rounds: Rounds, compared: Compared, iterations: int, wall_us: float
    ) -> Measured:
        eager = rounds.ratio(REFERENCE, CANDIDATE)
        speedups = {REFERENCE: eager} | {name: eager.times(ratio) for name, ratio in compared.relative.items()}
        exact = self.baselines.compared(contender.case).get("exact")
        if exact is not None:
            strict = Ratio(exact.eager_us / compared.eager_us)
            speedups["eager_strict"] = eager if exact is compared else eager.times(strict)
        times = rounds.times_us(CANDIDATE)
        time_us = rounds.time_us(CANDIDATE)
        notes = list(self.baselines.problems.values())
        if rounds.slow():
            notes.append(f"the clock of the device was low in {len(rounds.slow())} of {rounds.count} rounds")
        return Measured(
            time_us,
            interval_95(times),
            {name: time_us * ratio.value for name, ratio in speedups.items() if name != "eager_strict"},
            rounds.peak_bytes(CANDIDATE),
            {
                "rounds": rounds.count,
                "repeated": rounds.repeated,
                "iterations": iterations,
                "medians_us": times,
                "reference_medians_us": rounds.times_us(REFERENCE),
                "speedups": {name: ratio.to_json() for name, ratio in speedups.items()},
                "band": compared.band,
                "wall_us": wall_us,
                "tier": contender.tier,
                "baseline_peak_bytes": compared.peak_bytes | {REFERENCE: rounds.peak_bytes(REFERENCE)},
                "blocks": rounds.to_json(),
                "notes": notes,
            },
        )

    def _slope(self, answerer: Answerer, iterations: int, calls: bool) -> float:
        """Microseconds of one call, or of what surrounds one, by the judge's own clock: the slope over two counts."""
        few, many = max(iterations // 4, 2), max(iterations, 8)
        walls = []
        for count in (few, many):
            start = time.perf_counter()
            answerer.block(count, calls=calls)
            walls.append(time.perf_counter() - start)
        return (walls[1] - walls[0]) / (many - few) * 1e6

    def _check_flush(self, answerer: Answerer, empty_us: float, eager: Process) -> None:
        """Raises Fault where what surrounds a candidate's calls takes far less than what surrounds the reference's.

        A busy host makes either look longer or shorter: the least of several counts for the reference, the most for
        the candidate.
        """
        if self._settings.cache != "cold":
            return
        if self._flush_us is None:
            with contextlib.suppress(Gone):
                self._flush_us = min(self._slope(eager.answerer, _EMPTY_CALLS, calls=False) for _ in range(_TRIES))
        least_us = _UNFLUSHED * (self._flush_us or 0.0) - _FLUSH_SLACK_US
        tries = 0
        while empty_us < least_us:
            if tries == _TRIES:
                reason = (
                    f"between its calls the cache is not flushed: {empty_us:.3g} us where that takes {least_us:.3g}"
                )
                raise Fault("tampered", reason)
            empty_us = max(empty_us, self._slope(answerer, _EMPTY_CALLS, calls=False))
            tries += 1
