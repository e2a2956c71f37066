"""A made-up landscape of kernels on which search policies can be compared in seconds, without a model or a device.

What it takes from real searches:

- *Structures.* 24 families, each with a speed that its best setting reaches: log-normal around 1.3x eager (sigma
  0.55). Whoever writes a kernel from the task alone draws a family by popularity (Zipf), and popularity goes against
  speed: the common ideas are mediocre. Each family has two neighbours; a new kernel written with others in view comes
  from the neighbourhood of one of them in half of all cases.
- *Settings.* Each family has 6 parameters of 4 levels. How much of its speed a setting reaches depends on pairs of
  parameters (an NK landscape, K = 1), so that edits of one parameter end in local optima. A new kernel's setting is
  the better of two random ones in the slower half of the families, and the worse of two in the faster half: good
  structures start slow.
- *Edits.* A local step changes one parameter of its parent to another level, in one case of five two parameters.
- *Failures.* 40% of all kernels are of no use: 25% do not compile, 15% are wrong. An edit of such a one mends it or
  not with the same odds; an edit of a good one fails with the same odds.
- *Noise.* What is measured is the truth times 1 + N(0, 3%).

The defaults of `adaexplore` were chosen on other seeds of this landscape than those that the benchmark reports.

The speed of light is 1.1 times the fastest family's best setting. Everything follows from one seed.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from engine.records import Candidate, CandidateState, ProposerKind, Step, Verdict
from engine.search.choice import Choice, generator
from engine.search.context import choose_context
from engine.search.policies import find_policy
from engine.search.reward import reward
from engine.search.snapshot import ROOT, Snapshot, allowed_steps
from engine.settings import PolicySettings

FAMILIES, PARAMETERS, LEVELS = 24, 6, 4
BROKEN, WRONG, NOISE = 0.25, 0.15, 0.03
NEIGHBOUR, TWO_CHANGES = 0.5, 0.2
PROPOSAL_S, EVALUATION_S = (20.0, 40.0), (15.0, 25.0)
"""How long a simulated model writes and a simulated device judges, in seconds."""


@dataclass(frozen=True)
class Kernel:
    """A point of the landscape: a family, a setting of its parameters, and whether it works."""

    family: int
    setting: tuple[int, ...]
    verdict: Verdict


class Landscape:
    """The landscape of one seed."""

    def __init__(self, seed: int) -> None:
        random = Random(f"landscape {seed}")
        speeds = sorted(1.3 * math.exp(random.gauss(0.0, 0.55)) for _ in range(FAMILIES))
        # Popularity falls with speed, but not strictly: each rank is blurred.
        order = sorted(range(FAMILIES), key=lambda index: index + random.uniform(0, FAMILIES / 3))
        self.speeds = [speeds[index] for index in order]
        self.popularity = [1.0 / (rank + 1) for rank in range(FAMILIES)]
        ring = random.sample(range(FAMILIES), FAMILIES)
        self.neighbours = {ring[i]: (ring[i - 1], ring[(i + 1) % FAMILIES]) for i in range(FAMILIES)}
        self._shares = [self._rugged(random) for _ in range(FAMILIES)]
        self.best = [max(self._raw(family, setting) for setting in _settings()) for family in range(FAMILIES)]
        self.bound = 1.1 * max(self.speeds)

    @staticmethod
    def _rugged(random: Random) -> list[list[list[float]]]:
        return [[[random.random() for _ in range(LEVELS)] for _ in range(LEVELS)] for _ in range(PARAMETERS)]

    def _raw(self, family: int, setting: tuple[int, ...]) -> float:
        shares = self._shares[family]
        return sum(shares[i][setting[i]][setting[(i + 1) % PARAMETERS]] for i in range(PARAMETERS)) / PARAMETERS

    def speedup(self, kernel: Kernel) -> float:
        """The true speedup of a kernel that works: the square of its setting's share, so that bad ones are slow."""
        share = self._raw(kernel.family, kernel.setting) / self.best[kernel.family]
        return self.speeds[kernel.family] * share**2

    def new(self, shown: Sequence[Kernel], random: Random) -> Kernel:
        """A new structure, perhaps from the neighbourhood of one that is shown."""
        if shown and random.random() < NEIGHBOUR:
            family = random.choice(self.neighbours[random.choice(shown).family])
        else:
            (family,) = random.choices(range(FAMILIES), self.popularity)
        drawn = sorted((self._setting(random) for _ in range(2)), key=lambda setting: self._raw(family, setting))
        fast = self.speeds[family] > sorted(self.speeds)[FAMILIES // 2]
        return Kernel(family, drawn[0] if fast else drawn[1], _verdict(random))

    def edit(self, parent: Kernel, random: Random) -> Kernel:
        """A change of a kernel."""
        setting = list(parent.setting)
        for index in random.sample(range(PARAMETERS), 2 if random.random() < TWO_CHANGES else 1):
            setting[index] = random.choice([level for level in range(LEVELS) if level != setting[index]])
        return Kernel(parent.family, tuple(setting), _verdict(random))

    @staticmethod
    def _setting(random: Random) -> tuple[int, ...]:
        return tuple(random.randrange(LEVELS) for _ in range(PARAMETERS))


def _settings() -> list[tuple[int, ...]]:
    settings: list[tuple[int, ...]] = [()]
    for _ in range(PARAMETERS):
        settings = [(*setting, level) for setting in settings for level in range(LEVELS)]
    return settings


def _verdict(random: Random) -> Verdict:
    drawn = random.random()
    if drawn < BROKEN:
        return Verdict.COMPILE_ERROR
    return Verdict.INCORRECT if drawn < BROKEN + WRONG else Verdict.CORRECT


@dataclass(frozen=True)
class Outcome:
    """What a search came to.

    `curve` holds, after each candidate that was judged, the true speedup of the one that then measured fastest;
    `seconds` is how long it would have taken.
    """

    curve: tuple[float, ...]
    seconds: float

    @property
    def final(self) -> float:
        """The true speedup of the candidate that the search believes best."""
        return self.curve[-1]

    @property
    def area(self) -> float:
        """The mean over the search of the logarithm of the best so far."""
        return sum(map(math.log, self.curve)) / len(self.curve)


def search(landscape: Landscape, settings: PolicySettings, seed: int, budget: int, devices: int = 1) -> Outcome:
    """Searches with as many proposals at once as there are devices, one evaluation a device."""
    return _Search(landscape, settings, seed, budget, devices).run()


class _Search:
    """A search in simulated time."""

    def __init__(self, landscape: Landscape, settings: PolicySettings, seed: int, budget: int, devices: int) -> None:
        self._landscape, self._settings, self._seed = landscape, settings, seed
        self._budget, self._devices = budget, devices
        self._policy = find_policy(settings.name)
        self._snapshot = Snapshot(steps=allowed_steps(settings))
        self._kernels: dict[int, Kernel] = {}
        self._candidates: dict[int, Candidate] = {}
        self._curve: list[float] = []
        self._measured = 0.0
        self._true = 0.1
        self._now = 0.0
        self._queue: list[int] = []
        self._events: list[tuple[float, int, Callable[[int], None]]] = []
        self._busy = 0

    def run(self) -> Outcome:
        self._expand()
        while self._events:
            self._now, number, happens = heapq.heappop(self._events)
            happens(number)
            self._expand()
        return Outcome(tuple(self._curve), self._now)

    def _expand(self) -> None:
        while len(self._candidates) < self._budget and self._open < self._devices:
            number = len(self._candidates) + 1
            choice = self._policy(self._snapshot, self._settings, generator(self._seed, number))
            if choice is None:
                return
            self._keep(Candidate(1, number, choice.parent or None, choice.step, ProposerKind.LLM,
                                 CandidateState.PROPOSING, "", 1))  # fmt: skip
            random = Random(f"{self._seed} proposal {number}")
            self._kernels[number] = self._propose(choice, number, random)
            heapq.heappush(self._events, (self._now + random.uniform(*PROPOSAL_S), number, self._proposed))

    @property
    def _open(self) -> int:
        return sum(not candidate.state.final for candidate in self._candidates.values())

    def _propose(self, choice: Choice, number: int, random: Random) -> Kernel:
        shown = choice.context
        if shown is None:
            draw = generator(self._seed, f"context of {number}")
            pool = self._settings.context_pool
            shown = choose_context(self._snapshot, choice.parent, choice.step, pool, draw).numbers
        if choice.step is Step.LOCAL and choice.parent != ROOT:
            return self._landscape.edit(self._kernels[choice.parent], random)
        return self._landscape.new([self._kernels[each] for each in shown], random)

    def _proposed(self, number: int) -> None:
        self._keep(replace(self._candidates[number], state=CandidateState.QUEUED))
        self._queue.append(number)
        self._judge()

    def _judge(self) -> None:
        while self._queue and self._busy < self._devices:
            number = self._queue.pop(0)
            self._busy += 1
            lasts = Random(f"{self._seed} evaluation {number}").uniform(*EVALUATION_S)
            heapq.heappush(self._events, (self._now + lasts, number, self._judged))

    def _judged(self, number: int) -> None:
        self._busy -= 1
        kernel = self._kernels[number]
        measured = true = None
        if kernel.verdict is Verdict.CORRECT:
            true = self._landscape.speedup(kernel)
            measured = true * (1 + NOISE * Random(f"{self._seed} noise {number}").gauss(0.0, 1.0))
            if measured > self._measured:
                self._measured, self._true = measured, true
        self._curve.append(self._true)
        worth = reward(kernel.verdict, measured, self._landscape.bound, self._settings.reward)
        self._keep(replace(self._candidates[number], state=CandidateState.EVALUATED, verdict=kernel.verdict,
                           speedup=measured, reward=worth))  # fmt: skip
        self._judge()

    def _keep(self, candidate: Candidate) -> None:
        self._candidates[candidate.number] = candidate
        self._snapshot = self._snapshot.after([candidate], asked=len(self._candidates))
