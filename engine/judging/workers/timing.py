"""One timed block of calls on a GPU, in the process that makes the calls.

What it needs from torch is taken when this module is loaded, before any candidate's code runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

_Event: Any = torch.cuda.Event
_synchronize = torch.cuda.synchronize

FLUSH_BYTES = 256 << 20
"""What is written between two calls at least, so that nothing useful stays in the L2 cache."""


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


def run_block(call: Callable[[int], Any], iterations: int, flush: torch.Tensor | None) -> Block:
    """Runs `call(i)` for each iteration between two device events.

    Args:
        call: the timed work on the inputs of iteration i.
        iterations: how many calls.
        flush: overwritten before each call; None leaves the cache warm.
    """
    starts = [_Event(enable_timing=True) for _ in range(iterations)]
    ends = [_Event(enable_timing=True) for _ in range(iterations)]
    torch.cuda.reset_peak_memory_stats()
    last = None
    _synchronize()
    for index in range(iterations):
        if flush is not None:
            flush.zero_()
        starts[index].record()
        last = call(index)
        ends[index].record()
    _synchronize()
    times = [start.elapsed_time(end) * 1000.0 for start, end in zip(starts, ends, strict=True)]
    return Block(times, int(torch.cuda.max_memory_allocated()), last)
