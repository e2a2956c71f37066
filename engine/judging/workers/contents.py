"""What timed calls work on: inputs that nobody has seen, in several sets that calls go through in turn."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch

from engine.judging.workers.exchange import Arena
from engine.judging.workers.reference import Reference
from engine.judging.workers.trials import Trial

MAX_SETS, SET_BYTES = 4, 512 << 20
"""How many sets there are: as many as fit into so many bytes."""


class Contents:
    """Draws inputs for timed calls; no two draws of a judge's life are the same."""

    def __init__(self, seed: int) -> None:
        """Takes the run's secret."""
        self._draw = random.Random(seed).randrange(1 << 40)

    def draw(self, reference: Reference) -> tuple[Any, list[torch.Tensor]]:
        """One set: its form and its tensors."""
        return reference.draw(self._trial())

    def fill(self, arenas: Sequence[Arena], reference: Reference) -> list[Trial]:
        """Puts fresh contents into every set of the arenas, the same into all; the trials that they come from."""
        trials = [self._trial()]
        together = list(reference.draw(trials[0])[1])
        for _ in range(sets_of(together) - 1):
            trials.append(self._trial())
            together += reference.draw(trials[-1])[1]
        for arena in arenas:
            # An arena's own dtypes decide: a bfloat16 baseline takes the same values rounded.
            arena.write(together)
        return trials

    def _trial(self) -> Trial:
        self._draw += 1
        return Trial("a timed call", self._draw)


def sets_of(tensors: Sequence[torch.Tensor]) -> int:
    """How many sets like this one there are."""
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    return max(1, min(MAX_SETS, SET_BYTES // max(size, 1)))
