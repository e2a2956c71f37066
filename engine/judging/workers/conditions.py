"""What a checked call may be subjected to beside its inputs: memory that holds nonsense, margins, a time limit.

Runs in the contestant, on either kind of machine, and never while calls are timed.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from triton.runtime.errors import OutOfResources

from engine.judging.workers.exchange import MARGIN

_UNINITIALISED = frozenset(("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"))
_INITIALISED = frozenset(
    ("zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full")
)
_HUGE = 1e30
_MOST_HOST_BYTES = 64 << 20
"""Host memory up to here is filled; more would make pages real that a candidate may never touch."""

_MOST_MARGINS, _MOST_GUARDED_BYTES = 64, 4 << 30
"""Allocations of a call that get margins, and their size: while they are watched their memory is not used again."""

_SMALL_BLOCK = 1 << 20
"""PyTorch's allocator takes requests up to this size from segments of their own."""

_PATTERNS = {"nan": 0xFF, "huge": 0x3F, "harmless": 0x3F}
"""What each byte of a margin holds by filling: NaN or a small positive number in every float dtype."""


class LaunchRefused(OutOfResources, RuntimeError):  # type: ignore[misc]
    """What a launch that must fail raises; a fallback that waits for either kind takes it for its own."""

    def __init__(self) -> None:
        super().__init__(1, 0, "shared memory")


class TooLong(BaseException):
    """A call that is only asked what happens when its launches do nothing does not end."""


class Overrun(RuntimeError):
    """A kernel wrote outside the memory of a tensor that the candidate allocated."""


class Allocations(TorchFunctionMode):
    """What a candidate allocates holds nonsense, and lies between margins that must not change where they are wanted.

    Whoever reads memory before writing it computes nonsense. `filling` is `nan`; `huge`, since a maximum may
    swallow NaN; or `harmless`: huge, but zero for integers, which may be used as an index where launches were
    left out, and a wrong one would end the process's use of the GPU.
    """

    def __init__(self, filling: str, margins: bool) -> None:
        super().__init__()
        self._filling = filling
        self._margins = margins
        self._pattern = _PATTERNS[filling]
        self._guarded: list[tuple[torch.Tensor, int]] = []
        self._bytes = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Runs `func` and fills what it allocates."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", "").partition(".")[0]
        fresh = name in _UNINITIALISED
        if not (fresh or name in _INITIALISED) or type(result) is not torch.Tensor or kwargs.get("out") is not None:
            return result
        with torch._C.DisableTorchFunction():
            if result.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
                return result
            if self._margins:
                result = self._between_margins(result, keep=not fresh)
            if fresh:
                self._fill(result)
        return result

    def _fill(self, tensor: torch.Tensor) -> None:
        if tensor.is_meta or (tensor.device.type == "cpu" and tensor.untyped_storage().nbytes() > _MOST_HOST_BYTES):
            return
        dtype = tensor.dtype
        if dtype.is_floating_point or dtype.is_complex:
            if dtype.itemsize == 1:
                tensor.view(torch.uint8).fill_(0xFF)
            else:
                huge = min(_HUGE, torch.finfo(dtype).max)
                tensor.fill_(float("nan") if self._filling == "nan" else huge)
        elif self._filling == "harmless":
            tensor.zero_()
        elif dtype is torch.bool:
            tensor.fill_(True)
        else:
            tensor.fill_(min(torch.iinfo(dtype).max, torch.iinfo(torch.int64).max))

    def _between_margins(self, tensor: torch.Tensor, keep: bool) -> torch.Tensor:
        """The same tensor inside a larger allocation that is watched, with its contents where they count."""
        size = tensor.untyped_storage().nbytes()
        if not size or len(self._guarded) == _MOST_MARGINS or self._bytes + size > _MOST_GUARDED_BYTES:
            return tensor
        self._bytes += size
        room = -(-size // MARGIN) * MARGIN
        memory = torch.empty(room + 2 * MARGIN, dtype=torch.uint8, device=tensor.device)
        memory[:MARGIN].fill_(self._pattern)
        memory[MARGIN + size :].fill_(self._pattern)
        self._guarded.append((memory, size))
        flat = memory[MARGIN : MARGIN + size].view(tensor.dtype)
        moved = flat.as_strided(tensor.shape, tensor.stride())
        if keep:
            moved.copy_(tensor)
        return moved.requires_grad_(tensor.requires_grad)

    def check(self) -> None:
        """Raises Overrun where a margin has changed; the call's work must be done."""
        with torch._C.DisableTorchFunction():
            for memory, size in self._guarded:
                for margin, where in ((memory[:MARGIN], "before"), (memory[MARGIN + size :], "behind")):
                    changed = int((margin != self._pattern).sum())
                    if changed:
                        raise Overrun(
                            f"it writes {changed} bytes {where} a tensor of {size} bytes that it allocated itself"
                        )
            self._guarded.clear()
            self._bytes = 0


def spoil_free_memory() -> None:
    """Fills the memory that PyTorch's allocator has taken back on this process's GPU, former answers among it."""
    held = []
    stream = int(torch.cuda.current_stream().cuda_stream)
    for segment in torch.cuda.memory_snapshot():  # type: ignore[no-untyped-call]
        if int(segment.get("stream", 0)) != stream or tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0):
            continue
        for block in segment["blocks"]:
            size = int(block["size"])
            if block["state"] == "inactive" and (size > _SMALL_BLOCK) == (segment["segment_type"] == "large"):
                held.append(size)
    try:
        # The allocator gives the smallest block that fits: for a block's own size, that one.
        taken = [torch.empty(size, dtype=torch.uint8, device="cuda").fill_(0xFF) for size in sorted(held)]
    except torch.OutOfMemoryError:
        taken = []
    del taken


@contextmanager
def at_most(seconds: float | None) -> Iterator[None]:
    """Raises TooLong in the block once it has taken so long; None never does."""
    if seconds is None:
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
