"""Medians, geometric means and the intervals that go with a few rounds. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Sequence

_T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179)
"""Student's t at 97.5%, by degrees of freedom from 1 on."""


def median(values: Sequence[float]) -> float:
    """The middle value."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def geometric_mean(values: Sequence[float]) -> float:
    """The mean of positive values on a logarithmic scale."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def interval_95(values: Sequence[float]) -> tuple[float, float]:
    """The 95% t-interval of the geometric mean; the value itself where there is only one."""
    centre = geometric_mean(values)
    count = len(values)
    if count < 2:
        return centre, centre
    logs = [math.log(value) for value in values]
    mean = math.fsum(logs) / count
    deviation = math.sqrt(math.fsum((log - mean) ** 2 for log in logs) / (count - 1))
    t = _T_975[min(count - 1, len(_T_975)) - 1]
    half = t * deviation / math.sqrt(count)
    return centre * math.exp(-half), centre * math.exp(half)
