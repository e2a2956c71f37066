"""Measured time on a GPU: rounds of alternating reference and candidate blocks, each in its own process.

Iteration counts come from the reference. Every block works on fresh contents, its last outputs are
checked, and the times it reports are held against the judge's own wall clock. Candidate and baselines
share precision flags, mode and cache state.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from engine.judging.settings import JudgeSettings
from engine.judging.statistics import geometric_mean, interval_95, median
from engine.judging.workers.answerer import Answerer, Fault, Gone
from engine.judging.workers.device_lock import DeviceLock
from engine.judging.workers.exchange import Arena
from engine.judging.workers.reference import Reference
from engine.judging.workers.trials import Trial

BASELINES = ("eager", "compile", "compile_max")
QUICK_ROUNDS, FULL_ROUNDS = 3, 7
BLOCK_US = 100_000.0
"""How long a block of the reference takes, about; the candidate gets as many iterations."""

SLOW_BLOCK_US = 500_000.0
"""How long a block of a slow candidate may take, about."""

MIN_ITERATIONS, MAX_ITERATIONS = 8, 200
MAX_SETS, SET_BYTES = 4, 512 << 20
"""Input sets that a block goes through in turn, as many as fit into so many bytes."""

CONTRADICTION, SLACK_US = 2.0, 50.0
"""A reported time is contradicted when the wall clock finds it longer by this factor and this much more."""

Arenas = Callable[[Sequence[torch.Tensor]], Arena]
Waiting = Callable[[bool], None]
CheckOutputs = Callable[[Trial], None]


@dataclass(slots=True)
class Baseline:
    """A trusted process that runs the reference in one way; `times` are microseconds by case and tier."""

    name: str
    answerer: Answerer
    times: dict[tuple[int, str], float] = field(default_factory=dict)
    built: tuple[int, str] | None = None
    arena: Arena | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """One case of a candidate: microseconds with their interval, and baselines at the candidate's tier."""

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


class Clock:
    """Times candidates of one task on one GPU; at most one block runs at a time on the whole host."""

    def __init__(
        self, settings: JudgeSettings, lock: DeviceLock, arenas: Arenas, measuring: Callable[[str], None]
    ) -> None:
        """Sets the clock up.

        Args:
            settings: mode and cache state of all blocks.
            lock: the device's lock.
            arenas: lends memory for baseline processes.
            measuring: is told the name of each baseline before it is measured, and an empty one afterwards.
        """
        self._measuring = measuring
        self.baselines: dict[str, Baseline] = {}
        self._settings = settings
        self._lock = lock
        self._arenas = arenas
        self._iterations: dict[tuple[int, str], int] = {}
        self._best: dict[int, float] = {}
        self._draw = random.Random(settings.seed).randrange(1 << 40)
        self._order = random.Random(settings.seed)

    # baselines

    def add(self, baseline: Baseline) -> None:
        """Takes a baseline process into service."""
        self.baselines[baseline.name] = baseline

    def measure_baselines(self, case: int, reference: Reference, overrides: dict[str, Any], tier: str) -> None:
        """Measures every baseline that has no time at this tier yet; one that fails is left out with its problem.

        The device must be held alone.
        """
        for name in BASELINES:
            baseline = self.baselines.get(name)
            if baseline is None or baseline.problem or (case, tier) in baseline.times:
                continue
            self._measuring(name)
            try:
                self._measure_baseline(baseline, case, reference, overrides, tier)
            except Fault as fault:
                baseline.problem = f"{name}: {fault.reason}"
            except Gone:
                baseline.problem = f"{name}: its process ended or took too long"
            finally:
                self._measuring("")

    def _measure_baseline(
        self, baseline: Baseline, case: int, reference: Reference, overrides: dict[str, Any], tier: str
    ) -> None:
        self._build(baseline, case, reference, overrides, tier)
        assert baseline.arena is not None
        first = baseline.answerer.block(MIN_ITERATIONS, calls=True, keep=False)
        iterations = self._iterations_for(case, tier, first.times_us)
        medians = []
        for _ in range(QUICK_ROUNDS):
            self._fill([baseline.arena], reference)
            medians.append(median(baseline.answerer.block(iterations, calls=True, keep=False).times_us))
        baseline.times[case, tier] = geometric_mean(medians)

    def _iterations_for(self, case: int, tier: str, times_us: Sequence[float]) -> int:
        """The iteration count of a case; the first baseline that is timed, eager, decides it."""
        if (case, tier) not in self._iterations:
            count = int(BLOCK_US / max(median(times_us), 1.0))
            self._iterations[case, tier] = min(max(count, MIN_ITERATIONS), MAX_ITERATIONS)
        return self._iterations[case, tier]

    def _build(self, baseline: Baseline, case: int, reference: Reference, overrides: dict[str, Any], tier: str) -> None:
        """Has the process make the reference for a case and tier, and warm it up."""
        if baseline.built == (case, tier):
            return
        if baseline.built is None or baseline.built[0] != case:
            baseline.answerer.ask({"op": "load", "entry": None, "overrides": overrides})
        dtype = torch.bfloat16 if tier == "bf16" else None
        form, drawn = reference.draw(self._trial())
        tensors = [_cast(tensor, dtype) for tensor in drawn]
        names, state = reference.state()
        sets = _sets(drawn)
        inputs, weights = self._arenas(tensors), self._arenas(state)
        constants = self._arenas(reference.init_constants)
        inputs.write(tensors)
        weights.write(state)
        constants.write(reference.init_constants)
        baseline.answerer.ask(
            {
                "op": "build",
                "init": reference.init_form,
                "input_form": form,
                "names": names,
                "seed": reference.weight_seed,
                "dtype": "bfloat16" if tier == "bf16" else self._settings.dtype,
                "tier": tier,
                "optimise": None if baseline.name == "eager" else baseline.name,
            },
            [inputs, weights, constants],
        )
        for arena in (inputs, weights, constants, *([baseline.arena] if baseline.arena is not None else [])):
            # The process is trusted, so that what it no longer uses can be lent at once.
            arena.close()
        baseline.arena = self._arenas(tensors * sets)
        baseline.arena.write(tensors * sets)
        self._prepare(baseline.answerer, baseline.arena, sets)
        # The first calls compile and tune.
        baseline.answerer.block(3, calls=True, keep=False)
        baseline.built = (case, tier)

    def _prepare(self, answerer: Answerer, arena: Arena, sets: int) -> None:
        settings = self._settings
        message = {"op": "prepare", "sets": sets, "mode": settings.time_mode, "cache": settings.cache}
        answerer.ask(message, [arena])

    # candidates

    def measure(
        self,
        answerer: Answerer,
        case: int,
        reference: Reference,
        overrides: dict[str, Any],
        tier: str,
        check: CheckOutputs,
        waiting: Waiting,
        arenas: Arenas,
    ) -> Measured:
        """Times a candidate that has been found correct.

        Args:
            answerer: the contestant, built and with an arena for its outputs.
            case: the case's place in the task.
            reference: the case.
            overrides: the case's constants, for baseline processes.
            tier: the candidate's precision tier.
            check: compares what the output arena holds with the truth about a trial; raises Fault.
            waiting: is told while the device is not free, or busy with baselines.
            arenas: lends memory that the contestant may map.

        Raises:
            Fault: a timed answer is wrong, or the reported times are contradicted.
            Gone: the contestant ended.
        """
        _, tensors = reference.draw(self._trial())
        sets = _sets(tensors)
        arena = arenas(tensors * sets)
        arena.write(tensors * sets)
        with self._lock.exclusive(waiting):
            waiting(True)
            self.measure_baselines(case, reference, overrides, tier)
            eager = self.baselines["eager"]
            if eager.problem or (case, tier) not in eager.times:
                raise AssertionError(f"the reference cannot be timed: {eager.problem}")
            self._build(eager, case, reference, overrides, tier)
            waiting(False)
            self._prepare(answerer, arena, sets)
            return self._rounds(answerer, arena, eager, case, reference, tier, check)

    def _rounds(
        self,
        answerer: Answerer,
        arena: Arena,
        eager: Baseline,
        case: int,
        reference: Reference,
        tier: str,
        check: CheckOutputs,
    ) -> Measured:
        assert eager.arena is not None
        warm = answerer.block(MIN_ITERATIONS, calls=True, keep=False)
        # A candidate far slower than the reference must not wait for its verdict all day.
        affordable = int(SLOW_BLOCK_US / max(median(warm.times_us), 1.0))
        iterations = min(self._iterations[case, tier], max(affordable, MIN_ITERATIONS))
        mine: list[float] = []
        theirs: list[float] = []
        peak = 0
        rounds = QUICK_ROUNDS
        while len(mine) < rounds:
            trials = self._fill([arena, eager.arena], reference)
            for who in self._order.sample(("candidate", "reference"), 2):
                if who == "reference":
                    theirs.append(median(eager.answerer.block(iterations, calls=True, keep=False).times_us))
                    continue
                block = answerer.block(iterations, calls=True, keep=True)
                mine.append(median(block.times_us))
                peak = max(peak, block.peak_bytes)
                check(trials[(iterations - 1) % len(trials)])
            if len(mine) == QUICK_ROUNDS and geometric_mean(mine) < 1.02 * self._best.get(case, float("inf")):
                rounds = FULL_ROUNDS
        time_us = geometric_mean(mine)
        slope_us = self._slope(answerer, iterations)
        if slope_us > CONTRADICTION * time_us + SLACK_US:
            reason = f"it reports {time_us:.4g} us a call, the judge's own clock finds {slope_us:.4g} us"
            raise Fault("tampered", reason)
        self._best[case] = min(time_us, self._best.get(case, float("inf")))
        ratios = [reference_us / candidate_us for reference_us, candidate_us in zip(theirs, mine, strict=True)]
        ratio = geometric_mean(ratios)
        return Measured(
            time_us,
            interval_95(mine),
            self._baselines_now(case, tier, time_us * ratio),
            peak,
            {
                "rounds": len(mine),
                "iterations": iterations,
                "medians_us": mine,
                "reference_medians_us": theirs,
                "speedup_ci95": list(interval_95(ratios)),
                "wall_us": slope_us,
                "tier": tier,
                "notes": [baseline.problem for baseline in self.baselines.values() if baseline.problem],
            },
        )

    def _baselines_now(self, case: int, tier: str, eager_us: float) -> dict[str, float]:
        """Every baseline at the speed that the device has now, by how eager compares with its stored time."""
        drift = eager_us / self.baselines["eager"].times[case, tier]
        return {
            name: baseline.times[case, tier] * drift
            for name, baseline in self.baselines.items()
            if (case, tier) in baseline.times
        }

    def _slope(self, answerer: Answerer, iterations: int) -> float:
        """Microseconds of one call by the judge's own clock: the slope over two counts, less that of empty blocks."""
        few, many = max(iterations // 4, 2), max(iterations, 8)
        slopes = {}
        for calls in (True, False):
            walls = []
            for count in (few, many):
                start = time.perf_counter()
                answerer.block(count, calls=calls, keep=False)
                walls.append(time.perf_counter() - start)
            slopes[calls] = (walls[1] - walls[0]) / (many - few) * 1e6
        return slopes[True] - max(slopes[False], 0.0)

    # contents

    def _trial(self) -> Trial:
        """A draw that no candidate has seen."""
        self._draw += 1
        return Trial("a timed call", self._draw)

    def _fill(self, arenas: Sequence[Arena], reference: Reference) -> list[Trial]:
        """Puts fresh contents into every set; the trials that they come from, in order."""
        _, tensors = reference.draw(trial := self._trial())
        count = _sets(tensors)
        trials, together = [trial], list(tensors)
        for _ in range(count - 1):
            trials.append(self._trial())
            together += reference.draw(trials[-1])[1]
        for arena in arenas:
            # An arena's own dtypes decide: a bfloat16 baseline takes the same values rounded.
            arena.write(together)
        return trials


def _sets(tensors: Sequence[torch.Tensor]) -> int:
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    return max(1, min(MAX_SETS, SET_BYTES // max(size, 1)))


def _cast(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    return tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor
