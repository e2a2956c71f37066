"""Rounds of blocks that alternate between several sides in random order, and what they say of each other.

A slow device slows all sides of a round alike, so that only ratios within a round count.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.judging.ratios import Ratio, of_rounds
from engine.judging.statistics import geometric_mean, median
from engine.judging.workers.device_state import UNKNOWN, DeviceState

QUICK, FULL = 3, 7
"""How many rounds there are at least, and for what may become best."""

MOST_REPEATED = 4
"""How many rounds of a session are played again because of a slow clock."""

_SLOW_CLOCK = 0.9
"""The share of the usual clock below which a block does not count."""


@dataclass(frozen=True, slots=True)
class Block:
    """One side's part of a round: the median call in microseconds, its memory, and what the device went through."""

    time_us: float
    peak_bytes: int = 0
    state: DeviceState = UNKNOWN


class Rounds:
    """One session: the same sides throughout, each in a process of its own."""

    def __init__(
        self, sides: Mapping[str, Callable[[], Block]], refresh: Callable[[], None], order: random.Random
    ) -> None:
        """Takes the sides with what runs a block of each.

        Args:
            sides: by name, what runs a block.
            refresh: puts fresh contents before all sides; called before each round.
            order: draws the order within each round.
        """
        self._sides = dict(sides)
        self._refresh = refresh
        self._order = order
        self._played: list[dict[str, Block]] = []
        self.repeated = 0

    def play(self, count: int) -> None:
        """Goes on until there are `count` rounds, and plays those again that ran on a slow clock, a few at most."""
        while len(self._played) < count:
            self._played.append(self._round())
        while self.repeated < MOST_REPEATED and (slow := self.slow()):
            self._played[slow[0]] = self._round()
            self.repeated += 1

    def _round(self) -> dict[str, Block]:
        self._refresh()
        return {name: self._sides[name]() for name in self._order.sample(list(self._sides), len(self._sides))}

    def slow(self) -> list[int]:
        """The rounds in which a side's clock was clearly below that side's usual one."""
        found = set()
        for name in self._sides:
            clocks = [blocks[name].state.sm_mhz for blocks in self._played]
            known = [clock for clock in clocks if clock is not None]
            if not known:
                continue
            least = _SLOW_CLOCK * median(known)
            found |= {index for index, clock in enumerate(clocks) if clock is not None and clock < least}
        return sorted(found)

    @property
    def count(self) -> int:
        """How many rounds count."""
        return len(self._played)

    def times_us(self, side: str) -> list[float]:
        """The median calls of a side, round by round."""
        return [blocks[side].time_us for blocks in self._played]

    def time_us(self, side: str) -> float:
        """The geometric mean of a side's times."""
        return geometric_mean(self.times_us(side))

    def ratio(self, numerator: str, denominator: str) -> Ratio:
        """The time of one side over that of another."""
        return of_rounds(self.times_us(numerator), self.times_us(denominator))

    def peak_bytes(self, side: str) -> int:
        """The most memory that a block of the side took."""
        return max(blocks[side].peak_bytes for blocks in self._played)

    def to_json(self) -> list[dict[str, Any]]:
        """Every block with its circumstances, in the order of rounds, as it is stored."""
        return [
            {"round": index, "side": name, "time_us": round(block.time_us, 4), **block.state.to_json()}
            for index, blocks in enumerate(self._played, 1)
            for name, block in blocks.items()
        ]
