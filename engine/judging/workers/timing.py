"""One timed block of calls on a GPU, in the process that makes the calls.

What it needs from torch is taken when this module is loaded, before any candidate's code runs.
"""

from __future__ import annotations

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
    """Times of single calls in microseconds, by device events, and the last call's result."""

    times_us: list[float]
    peak_bytes: int
    last: Any


def flush_buffer(device: torch.device) -> torch.Tensor:
    """Memory of at least twice the L2 cache, to be overwritten between calls."""
    size = max(FLUSH_BYTES, 2 * int(torch.cuda.get_device_properties(device).L2_cache_size))
    return torch.empty(size, dtype=torch.uint8, device=device)


def captured(call: Call, sets: int) -> Call:
    """The call recorded as one CUDA graph for each set of inputs, and replayed; the inputs must outlive it."""
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


def run_block(call: Call | None, iterations: int, flush: torch.Tensor | None) -> Block:
    """Runs `call(i)` for each iteration between two device events.

    Args:
        call: the timed work on the inputs of iteration i; None runs all but the work, so that the judge can
            subtract it from its own wall time.
        iterations: how many calls.
        flush: overwritten before each call; None leaves the cache warm.
    """
    starts: Sequence[Any] = [_Event(enable_timing=True) for _ in range(iterations)]
    ends: Sequence[Any] = [_Event(enable_timing=True) for _ in range(iterations)]
    _reset_peak()
    last = None
    _synchronize()
    for index in range(iterations):
        if flush is not None:
            flush.zero_()
        starts[index].record()
        if call is not None:
            last = call(index)
        ends[index].record()
    _synchronize()
    if call is None:
        return Block([], 0, None)
    times = [start.elapsed_time(end) * 1000.0 for start, end in zip(starts, ends, strict=True)]
    return Block(times, int(_peak()), last)
