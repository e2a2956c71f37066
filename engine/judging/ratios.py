"""How many times faster one thing is than another, with the uncertainty of it, and the word for that.

Everything is on a logarithmic scale, where ratios of independent measurements add. Standard library
only: judge and engine reckon alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.judging.statistics import geometric_mean, interval_95

LEAST_BAND = 0.02
"""A difference below this share is never called one."""

FASTER, SAME, SLOWER = "faster", "same", "slower"


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio, and the half width of its 95% interval as a natural logarithm."""

    value: float
    half: float = 0.0

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.value * math.exp(-self.half)

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.value * math.exp(self.half)

    @property
    def reach(self) -> float:
        """How far the interval reaches away from 1 on its farther side, as a share of 1."""
        return math.exp(abs(math.log(self.value)) + self.half) - 1.0

    def times(self, other: Ratio) -> Ratio:
        """The product with an independent ratio."""
        return Ratio(self.value * other.value, math.hypot(self.half, other.half))

    def to_json(self) -> list[float]:
        """The ratio as it travels and is stored."""
        return [self.value, self.half]

    @classmethod
    def from_json(cls, fields: Sequence[Any]) -> Ratio:
        """The ratio in a message."""
        return cls(float(fields[0]), float(fields[1]))


def of_rounds(numerators: Sequence[float], denominators: Sequence[float]) -> Ratio:
    """The ratio of two times that were measured side by side, round by round."""
    ratios = [one / other for one, other in zip(numerators, denominators, strict=True)]
    low, high = interval_95(ratios)
    return Ratio(geometric_mean(ratios), math.log(high / low) / 2)


def of_interval(value: float, low: float, high: float) -> Ratio:
    """A value with its interval, the other way of writing it."""
    return Ratio(value, math.log(high / low) / 2)


def weighted(pairs: Sequence[tuple[float, Ratio]]) -> Ratio:
    """The weighted geometric mean of (weight, ratio) pairs."""
    if len(pairs) == 1:
        return pairs[0][1]
    total = math.fsum(weight for weight, _ in pairs)
    value = math.exp(math.fsum(weight * math.log(ratio.value) for weight, ratio in pairs) / total)
    return Ratio(value, math.hypot(*(weight * ratio.half for weight, ratio in pairs)) / total)


def over_sessions(sessions: Sequence[Ratio]) -> Ratio:
    """One ratio from those of several processes, as uncertain as the processes differ or each is by itself."""
    if len(sessions) == 1:
        return sessions[0]
    values = [session.value for session in sessions]
    low, high = interval_95(values)
    within = math.fsum(session.half for session in sessions) / len(sessions)
    return Ratio(geometric_mean(values), max(math.log(high / low) / 2, within))


def standing(ratio: Ratio, band: float) -> str:
    """The word for a speedup: `faster` or `slower` only where the whole interval clears the band.

    Args:
        ratio: the baseline's time over the candidate's.
        band: how far the reference differed from itself in the same session, as a share of 1.
    """
    least = 1.0 + max(LEAST_BAND, band)
    if ratio.low > least:
        return FASTER
    return SLOWER if ratio.high < 1.0 / least else SAME
