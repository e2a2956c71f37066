"""One timed block of calls on a GPU, in the process that makes the calls.

What it needs from torch is taken when this module is loaded, before any candidate's code runs.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

_Event: Any = torch.cuda.Event
_synchronize = torch.cuda.synchronize
_reset_peak = torch.cuda.reset_peak_memory_stats
_peak = torch.cuda.max_memory_allocated

FLUSH_BYTES = 256 << 20
"""What is written between two calls at least, so that nothing useful stays in the L2 cache."""

Call = Callable[[int], Any]


@dataclass(frozen=True, slots=True)
class Block:
    """Times of single calls in microseconds, by device events, and the memory that they took beside what was there."""

    times_us: list[float]
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Kept:
    """The call of a block whose result is looked at, and what is done with the result, on the stream and untimed."""

    index: int
    take: Callable[[Any, int], None]


class Restoring:
    """Gives inputs that a call changes their contents back before the next call on them."""

    def __init__(self, sets: Sequence[Sequence[torch.Tensor]]) -> None:
        """Takes, for each set of inputs that calls go through in turn, those that are changed."""
        self._sets = sets
        self._contents = [[tensor.clone() for tensor in tensors] for tensors in sets]
        self.bytes = sum(tensor.numel() * tensor.element_size() for tensors in sets for tensor in tensors)

    def remember(self) -> None:
        """Takes what the inputs hold now for their contents."""
        for tensors, contents in zip(self._sets, self._contents, strict=True):
            for tensor, content in zip(tensors, contents, strict=True):
                content.copy_(tensor)

    def restore(self, index: int) -> None:
        """Puts the contents back into the set that call `index` works on."""
        place = index % len(self._sets)
        for tensor, content in zip(self._sets[place], self._contents[place], strict=True):
            tensor.copy_(content)

    def restore_all(self) -> None:
        """Puts the contents of every set back."""
        for place in range(len(self._sets)):
            self.restore(place)


class _PersistingLines:
    """Lines of the L2 cache that a process may ask to outlive a flush (CUDA driver, section on L2 persistence)."""

    _LIMIT = 6
    """CU_LIMIT_PERSISTING_L2_CACHE_SIZE in cuda.h."""

    def __init__(self) -> None:
        self._driver: Any = None
        with contextlib.suppress(OSError):
            self._driver = ctypes.CDLL("libcuda.so.1")

    def allowed(self) -> bool:
        """Whether part of the cache is set aside for them, without which there are none."""
        size = ctypes.c_size_t()
        with contextlib.suppress(AttributeError):
            if self._driver is not None and self._driver.cuCtxGetLimit(ctypes.byref(size), self._LIMIT) == 0:
                return size.value > 0
        return False

    def reset(self) -> None:
        """Makes them lines like all others, which a flush drives out."""
        with contextlib.suppress(AttributeError):
            self._driver.cuCtxResetPersistingL2Cache()


_persisting_lines = _PersistingLines()


def flush_buffer(device: torch.device) -> torch.Tensor:
    """Memory of at least twice the L2 cache, to be overwritten between calls."""
    size = max(FLUSH_BYTES, 2 * int(torch.cuda.get_device_properties(device).L2_cache_size))
    return torch.empty(size, dtype=torch.uint8, device=device)


def captured(call: Call, sets: int) -> Call:
    """The call recorded as a CUDA graph for each set of inputs, and replayed; the inputs must stay alive meanwhile."""
    for index in range(sets):
        call(index)
    _synchronize()
    graphs: list[tuple[Any, Any]] = []
    for index in range(sets):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = call(index)
        graphs.append((graph, result))

    def replay(index: int) -> Any:
        graph, result = graphs[index % sets]
        graph.replay()
        return result

    return replay


def run_block(
    call: Call | None,
    iterations: int,
    flush: torch.Tensor | None,
    restoring: Restoring | None = None,
    kept: Kept | None = None,
) -> Block:
    """Runs `call(i)` for each iteration between two device events.

    Args:
        call: the timed work on the inputs of iteration i; None runs all but the work, so that the judge can
            subtract it from its own wall time.
        iterations: how many calls.
        flush: overwritten before each call; None leaves the cache warm.
        restoring: gives changed inputs their contents back before each call.
        kept: the call whose result is looked at.
    """
    starts: Sequence[Any] = [_Event(enable_timing=True) for _ in range(iterations)]
    ends: Sequence[Any] = [_Event(enable_timing=True) for _ in range(iterations)]
    around = (flush.numel() if flush is not None else 0) + (restoring.bytes if restoring is not None else 0)
    persisting = flush is not None and _persisting_lines.allowed()
    if restoring is not None:
        restoring.remember()
    _reset_peak()
    _synchronize()
    for index in range(iterations):
        if restoring is not None:
            restoring.restore(index)
        if persisting:
            _persisting_lines.reset()
        if flush is not None:
            flush.zero_()
        starts[index].record()
        result = call(index) if call is not None else None
        ends[index].record()
        if kept is not None and kept.index == index:
            kept.take(result, index)
    _synchronize()
    if restoring is not None:
        # The judge measures blocks without putting fresh contents in between.
        restoring.restore_all()
        _synchronize()
    if call is None:
        return Block([], 0)
    times = [start.elapsed_time(end) * 1000.0 for start, end in zip(starts, ends, strict=True)]
    return Block(times, max(int(_peak()) - around, 0))
