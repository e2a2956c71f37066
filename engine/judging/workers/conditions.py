"""What a checked call may be subjected to beside its inputs: launches that fail, memory that holds nothing.

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

_UNINITIALISED = frozenset(("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"))
_HUGE = 1e30
_MOST_HOST_BYTES = 64 << 20
"""Host memory up to here is filled; more would make pages real that a candidate may never touch."""


class LaunchRefused(OutOfResources, RuntimeError):  # type: ignore[misc]
    """What a launch that must fail raises; a fallback that waits for either kind takes it for its own."""

    def __init__(self) -> None:
        super().__init__(1, 0, "shared memory")


class TooLong(BaseException):
    """A call that is only asked what happens when its launches do nothing does not end."""


class Uninitialised(TorchFunctionMode):
    """Fills memory that a candidate asks for without contents: whoever reads it first computes nonsense.

    `filling` is `nan`, or `huge` since a maximum may swallow NaN.
    """

    def __init__(self, filling: str) -> None:
        super().__init__()
        self._filling = filling

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Runs `func` and fills what it allocates."""
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in _UNINITIALISED and isinstance(result, torch.Tensor):
            with torch._C.DisableTorchFunction():
                self._fill(result)
        return result

    def _fill(self, tensor: torch.Tensor) -> None:
        if tensor.is_meta or (tensor.device.type == "cpu" and tensor.untyped_storage().nbytes() > _MOST_HOST_BYTES):
            return
        if tensor.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return
        dtype = tensor.dtype
        if dtype.is_floating_point or dtype.is_complex:
            if dtype.itemsize == 1:
                tensor.view(torch.uint8).fill_(0xFF)
            else:
                huge = min(_HUGE, torch.finfo(dtype).max)
                tensor.fill_(float("nan") if self._filling == "nan" else huge)
        elif dtype is torch.bool:
            tensor.fill_(True)
        else:
            tensor.fill_(torch.iinfo(dtype).max)


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
