"""What candidates are compared with on a GPU: the reference in several ways, and people's own kernels.

Each runs in a process of its own. All are measured in rounds against eager, and so is a second eager
process, whose difference from the first is the band below which no difference counts. Compiled
baselines are processes only once they must be measured: what is known from earlier runs is taken over
when eager is as fast as it was then.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from engine.judging.ratios import Ratio
from engine.judging.settings import JudgeSettings
from engine.judging.statistics import median
from engine.judging.wire import Message
from engine.judging.workers.answerer import Answerer, Fault, Gone
from engine.judging.workers.contents import Contents, sets_of
from engine.judging.workers.exchange import Arena
from engine.judging.workers.reference import Reference
from engine.judging.workers.rounds import FULL, Block, Rounds
from engine.judging.workers.trials import TRIALS

EAGER, AGAIN = "eager", "again"
"""The reference as PyTorch runs it, and the same in another process."""

BLOCK_US = 100_000.0
"""How long a block of eager takes, about; all other sides of a round get as many iterations."""

MIN_ITERATIONS, MAX_ITERATIONS = 8, 200

_AGREES = 0.05
"""How far eager may be from what it took in an earlier run whose ratios are taken over: as far as processes differ."""

Arenas = Callable[[Sequence[torch.Tensor]], Arena]


@dataclass(slots=True)
class Process:
    """A process that runs one baseline, and what it has been made ready for."""

    name: str
    answerer: Answerer
    built: tuple[int, str] | None = None
    arena: Arena | None = None


@dataclass(slots=True)
class Compared:
    """The baselines of one case at one precision tier.

    Attributes:
        eager_us: one call of eager, in microseconds.
        band: how far eager differed from itself in another process, as a share of 1.
        relative: each other baseline's time over eager's.
        peak_bytes: the memory that a call takes, by baseline.
    """

    eager_us: float
    band: float
    relative: dict[str, Ratio] = field(default_factory=dict)
    peak_bytes: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> Message:
        """What is known, as it travels and is stored."""
        relative = {name: ratio.to_json() for name, ratio in self.relative.items()}
        return {"eager_us": self.eager_us, "band": self.band, "relative": relative, "peak_bytes": self.peak_bytes}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Compared:
        """What another run found."""
        relative = {name: Ratio.from_json(ratio) for name, ratio in fields["relative"].items()}
        return cls(float(fields["eager_us"]), float(fields["band"]), relative, dict(fields["peak_bytes"]))


class _Lost(Exception):
    """A baseline failed in the middle of a session."""


class Baselines:
    """All baselines of one task on one GPU. The device must be held alone while any is measured."""

    def __init__(
        self,
        settings: JudgeSettings,
        arenas: Arenas,
        contents: Contents,
        wanted: Callable[[str], Answerer],
        measuring: Callable[[str], None],
    ) -> None:
        """Takes what measuring needs.

        Args:
            settings: mode and cache state of all blocks, and which baselines there are.
            arenas: lends memory for the processes.
            contents: draws what they work on.
            wanted: gives a process for a baseline by its name.
            measuring: is told the name of a baseline before its process is busy, and an empty one afterwards.
        """
        self.problems: dict[str, str] = {}
        self.names: list[str] = [name for name in settings.baselines if name != EAGER]
        self.own: dict[str, Message] = {}
        self._settings = settings
        self._arenas = arenas
        self._contents = contents
        self._wanted = wanted
        self._measuring = measuring
        self._processes: dict[str, Process] = {}
        self._compared: dict[tuple[int, str], Compared] = {}
        self._known: dict[tuple[int, str], Compared] = {}
        self._iterations: dict[tuple[int, str], int] = {}
        self._order = random.Random(settings.seed + 1)

    def add_own(self, name: str, load: Message) -> None:
        """Takes one of people's own kernels; `load` is what makes a process import it."""
        self.own[name] = load
        self.names.append(name)

    def know(self, case: int, tier: str, compared: Compared) -> None:
        """Takes what an earlier run found on this device with these versions."""
        self._known[case, tier] = compared

    def compared(self, case: int) -> dict[str, Compared]:
        """What has been found of a case so far, by tier."""
        return {tier: found for (index, tier), found in self._compared.items() if index == case}

    def iterations(self, case: int, tier: str) -> int:
        """How many calls make a block of eager."""
        return self._iterations[case, tier]

    # measuring

    def compare(self, case: int, reference: Reference, overrides: Mapping[str, Any], tier: str) -> Compared:
        """Measures what is not known yet of a case at a tier; a baseline that fails is left out with its problem.

        Raises:
            Fault, Gone: eager itself cannot be timed.
        """
        found = self._compared.get((case, tier))
        missing = [name for name in self.names if name not in self.problems and not (found and name in found.relative)]
        if found is not None and not missing:
            return found
        self.eager(case, reference, overrides, tier)
        known = self._known.get((case, tier))
        if found is None and known is not None:
            first = self._session([AGAIN], case, reference, overrides, tier)
            if abs(math.log(first.eager_us / known.eager_us)) <= math.log1p(max(_AGREES, first.band, known.band)):
                # A file of the same name may hold another kernel now.
                taken = {name: ratio for name, ratio in known.relative.items() if name in {*missing} - self.own.keys()}
                first.relative |= taken
                first.peak_bytes = {name: known.peak_bytes.get(name, 0) for name in taken} | first.peak_bytes
                missing = [name for name in missing if name not in taken]
                found = first
        if found is None or missing:
            again = [AGAIN] if found is None else []
            session = self._session([*again, *missing], case, reference, overrides, tier)
            if found is None:
                found = session
            else:
                found.relative |= session.relative
                found.peak_bytes |= session.peak_bytes
        self._compared[case, tier] = found
        return found

    def _session(
        self, names: Sequence[str], case: int, reference: Reference, overrides: Mapping[str, Any], tier: str
    ) -> Compared:
        """Plays the named baselines against eager, without those that fail."""
        for name in names:
            with self._noting(name):
                self._ready(name, case, reference, overrides, tier)
        while True:
            sides = [EAGER, *(name for name in names if name not in self.problems)]
            rounds = self._rounds(sides, reference, self._iterations[case, tier])
            try:
                rounds.play(FULL)
            except _Lost:
                continue
            relative = {name: rounds.ratio(name, EAGER) for name in sides if name not in (EAGER, AGAIN)}
            band = rounds.ratio(AGAIN, EAGER).reach if AGAIN in sides else 0.0
            peaks = {name: rounds.peak_bytes(name) for name in sides if name != AGAIN}
            return Compared(rounds.time_us(EAGER), band, relative, peaks)

    def _rounds(self, sides: Sequence[str], reference: Reference, iterations: int) -> Rounds:
        processes = {name: self._processes[name] for name in sides}

        def refresh() -> None:
            self._contents.fill([p.arena for p in processes.values() if p.arena is not None], reference)

        def play(name: str) -> Block:
            try:
                with self._watched(name):
                    return self.block(processes[name], iterations)
            except (Fault, Gone) as problem:
                if name == EAGER:
                    raise
                self.problems[name] = f"{name}: {_words(problem)}"
                raise _Lost from problem

        return Rounds({name: lambda name=name: play(name) for name in sides}, refresh, self._order)  # type: ignore[misc]

    def block(self, process: Process, iterations: int) -> Block:
        """One block of a baseline that is ready."""
        answered = process.answerer.block(iterations)
        return Block(median(answered.times_us), answered.peak_bytes)

    @contextmanager
    def _noting(self, name: str) -> Iterator[None]:
        """Keeps why a baseline cannot be made ready."""
        try:
            yield
        except (Fault, Gone) as problem:
            self.problems[name] = f"{name}: {_words(problem)}"

    @contextmanager
    def _watched(self, name: str) -> Iterator[None]:
        self._measuring(name)
        try:
            yield
        finally:
            self._measuring("")

    # making ready

    def eager(self, case: int, reference: Reference, overrides: Mapping[str, Any], tier: str) -> Process:
        """The eager process, ready for blocks of a case at a tier.

        Raises:
            Fault, Gone: it cannot be timed.
        """
        self._ready(EAGER, case, reference, overrides, tier)
        process = self._processes[EAGER]
        if (case, tier) not in self._iterations:
            first = process.answerer.block(MIN_ITERATIONS)
            count = int(BLOCK_US / max(median(first.times_us), 1.0))
            self._iterations[case, tier] = min(max(count, MIN_ITERATIONS), MAX_ITERATIONS)
        return process

    def _ready(self, name: str, case: int, reference: Reference, overrides: Mapping[str, Any], tier: str) -> None:
        """Has a baseline's process make its module for a case and tier, and warm it up."""
        if name in self.own:
            # A person's kernel is what it is, as a candidate's is.
            tier = "exact"
        process = self._processes.get(name)
        if process is None:
            process = self._processes[name] = Process(name, self._wanted(name))
        if process.built == (case, tier):
            return
        with self._watched(name):
            self._build(process, case, reference, overrides, tier)
        process.built = (case, tier)

    def _build(
        self, process: Process, case: int, reference: Reference, overrides: Mapping[str, Any], tier: str
    ) -> None:
        own = self.own.get(process.name)
        if own is not None:
            if process.built is None:
                process.answerer.ask(own)
        elif process.built is None or process.built[0] != case:
            process.answerer.ask({"op": "load", "entry": None, "overrides": dict(overrides)})
        process.built = None
        dtype = torch.bfloat16 if tier == "bf16" else None
        form, drawn = self._contents.draw(reference)
        tensors = [_cast(tensor, dtype) for tensor in drawn]
        names, state = reference.state()
        sets = sets_of(drawn)
        inputs, weights = self._arenas(tensors), self._arenas(state)
        constants = self._arenas(reference.init_constants)
        inputs.write(tensors)
        weights.write(state)
        constants.write(reference.init_constants)
        process.answerer.ask(
            {
                "op": "build",
                "init": reference.init_form,
                "input_form": form,
                "names": names,
                "seed": reference.weight_seed,
                "dtype": "bfloat16" if tier == "bf16" else self._settings.dtype,
                "tier": tier,
                "optimise": None if own is not None or process.name in (EAGER, AGAIN) else process.name,
                "tuned": [],
            },
            [inputs, weights, constants],
        )
        for arena in (inputs, weights, constants, *([process.arena] if process.arena is not None else [])):
            # The process keeps nothing of what it no longer uses, so that the memory can be lent at once.
            arena.close()
        process.arena = self._arenas(tensors * sets)
        process.arena.write(tensors * sets)
        process.answerer.ask(prepare(self._settings, sets, mutated(reference)), [process.arena])
        # The first calls compile and tune.
        process.answerer.block(3)


def prepare(settings: JudgeSettings, sets: int, changed: Sequence[int]) -> Message:
    """What makes a process ready for timed blocks; see `contestant._prepare`."""
    return {
        "op": "prepare",
        "sets": sets,
        "mode": settings.time_mode,
        "cache": settings.cache,
        "mutated": list(changed),
    }


def mutated(reference: Reference) -> tuple[int, ...]:
    """The inputs that the reference itself changes."""
    question = reference.question(TRIALS[0])
    assert question is not None
    return question.mutated


def _cast(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    return tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor


def _words(problem: Fault | Gone) -> str:
    return problem.reason if isinstance(problem, Fault) else "its process ended or took too long"
