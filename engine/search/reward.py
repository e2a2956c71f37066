"""How good a verdict is for the search, as one number."""

from __future__ import annotations

import math

from engine.records import Verdict

RUNS_BUT_WRONG = 0.05
_LOW, _HIGH = 0.4, 1.6
_SLOWEST, _PAPER_FASTEST, _LEAST_CEILING = 0.1, 10.0, 3.0


def reward(verdict: Verdict, speedup: float | None, bound_speedup: float | None, kind: str = "log") -> float | None:
    """The reward of a verdict; None for a fault of the machine, which says nothing of the candidate.

    Both kinds give 0 to what does not compile or tampers, 0.05 to what runs and is wrong, and 0.4 to 1.6
    to what is correct. "paper" is linear in speedup from 0.1x to 10x (AdaExplore); "log" is linear in its
    logarithm from 0.1x to the speedup at the bound, at least 3x, so that only the physical limit saturates.
    """
    match verdict:
        case Verdict.INFRASTRUCTURE_ERROR:
            return None
        case Verdict.COMPILE_ERROR | Verdict.TAMPERED:
            return 0.0
        case Verdict.CORRECT if speedup is not None and speedup > 0:
            return _LOW + (_HIGH - _LOW) * _share(speedup, bound_speedup, kind)
        case Verdict.CORRECT:
            return _LOW
        case _:
            return RUNS_BUT_WRONG


def _share(speedup: float, bound_speedup: float | None, kind: str) -> float:
    if kind == "paper":
        share = (speedup - _SLOWEST) / (_PAPER_FASTEST - _SLOWEST)
    else:
        ceiling = max(bound_speedup or _PAPER_FASTEST, _LEAST_CEILING)
        share = math.log(speedup / _SLOWEST) / math.log(ceiling / _SLOWEST)
    return min(max(share, 0.0), 1.0)
