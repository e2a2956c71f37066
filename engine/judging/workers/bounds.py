"""Keeps interpreted kernels inside the memory of the tensors that they were given.

The interpreter follows any address, so that an access outside would corrupt the process or go
unnoticed. Here it is an error with a line, as compute-sanitizer would report it on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

_WORDS = {"load": "reads", "store": "writes", "atomic": "changes"}


class OutOfBounds(IndexError):
    """A program accesses memory that belongs to none of its tensors."""


class RaceFound(RuntimeError):
    """A program reads what another one of the same launch has written, with nothing to order them."""


class Bounds:
    """The memory that one launch may touch: the storages of its tensor arguments.

    With `tracking` it also remembers which program wrote what.
    """

    active: Bounds | None = None
    """What the programs that run now are held to; None lets them go anywhere."""

    def __init__(self, tracking: bool = False) -> None:
        self.tracking = tracking
        self.program = 0
        self._writers: dict[int, npt.NDArray[np.int32]] = {}
        self._ordered = False
        self._raced = False
        self._regions: dict[int, int] = {}
        self._starts: npt.NDArray[np.uint64] | None = None
        self._ends: npt.NDArray[np.uint64] | None = None

    def address_of(self, value: Any) -> int:
        """The address of a tensor argument, whose whole storage may be touched from now on."""
        tensor = getattr(value, "base", value) if not isinstance(value, torch.Tensor) else value
        with torch._C.DisableTorchFunction():
            storage = tensor.untyped_storage()
            start, size = int(storage.data_ptr()), int(storage.nbytes())
        self._regions[start] = max(size, self._regions.get(start, 0))
        self._starts = None
        return int(value.data_ptr())

    def check(
        self, kind: str, addresses: npt.NDArray[np.uint64], mask: npt.NDArray[np.bool_] | None, itemsize: int
    ) -> None:
        """Raises OutOfBounds where an active lane leaves every region; `itemsize` is in bytes."""
        if self._starts is None or self._ends is None:
            starts = sorted(self._regions)
            self._starts = np.array(starts, dtype=np.uint64)
            self._ends = np.array([start + self._regions[start] for start in starts], dtype=np.uint64)
        active = np.asarray(addresses, dtype=np.uint64)
        if mask is not None:
            active = active[np.broadcast_to(mask, active.shape)]
        if active.size == 0:
            return
        if self._starts.size == 0:
            raise OutOfBounds(f"it {_WORDS[kind]} memory without having been given a tensor")
        low, high = active.min(), active.max()
        place = int(np.searchsorted(self._starts, low, side="right")) - 1
        if place >= 0 and int(high) + itemsize <= int(self._ends[place]):
            if self.tracking:
                self._track(kind, int(self._starts[place]), active)
            return
        places = np.searchsorted(self._starts, active, side="right").astype(np.int64) - 1
        ends = self._ends[np.maximum(places, 0)]
        outside = (places < 0) | (active + np.uint64(itemsize) > ends)
        count = int(outside.sum())
        if count:
            raise OutOfBounds(f"it {_WORDS[kind]} {count} elements outside the tensors that it was given")

    def _track(self, kind: str, start: int, active: npt.NDArray[np.uint64]) -> None:
        if kind == "atomic":
            # Atomics may be the lock or the counter that orders everything else.
            self._ordered = True
            return
        if start not in self._writers:
            self._writers[start] = np.zeros(self._regions[start], dtype=np.int32)
        writers = self._writers[start]
        places = (active - np.uint64(start)).astype(np.int64)
        if kind == "store":
            writers[places] = self.program
        elif not self._raced:
            found = writers[places]
            self._raced = bool(((found != 0) & (found != self.program)).any())

    def finish(self) -> None:
        """Raises RaceFound where programs read each other's results and no atomic orders them."""
        if self._raced and not self._ordered:
            raise RaceFound("a program reads what another program of the same launch has written, without atomics")


@contextmanager
def within(bounds: Bounds | None) -> Iterator[None]:
    """While active, interpreted programs are held to `bounds`."""
    before = Bounds.active
    Bounds.active = bounds
    try:
        yield
    finally:
        Bounds.active = before
