"""What a candidate does with the GPU beside answering: nothing while it compiles, alone while it tunes.

Runs in the contestant, which tells the judge when either begins and ends, and waits for its turn. A candidate
that is timed must not wait for another's compiler, and configurations that are timed beside other work are
chosen by chance.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from engine.judging.wire import Channel

COMPILING, TUNING = "compiling", "tuning"

_capturing = torch.cuda.is_current_stream_capturing
_cuda_is_used: Callable[[], bool] = torch.cuda.is_initialized
_synchronize = torch.cuda.synchronize


class Turns:
    """Asks the judge for turns while a question is being answered; turns do not nest."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._nonce = ""
        self._what = ""
        self._left_s = 0.0

    def install(self) -> None:
        """Registers with Triton, which calls the one hook before and the other after it compiles a kernel."""
        from triton import knobs

        knobs.runtime.jit_cache_hook = self._before
        knobs.runtime.jit_post_compile_hook = self._after

    def answering(self, nonce: str) -> None:
        """The question that is answered from now on; an empty one when it has been."""
        self._nonce, self._what = nonce, ""

    def begin(self, what: str) -> bool:
        """Takes a turn, `COMPILING` or `TUNING`; false where there is none to take, or one is taken already."""
        if not self._nonce or self._what or not self._may_pause():
            return False
        self._what = what
        self._wait_for({"event": what, "nonce": self._nonce})
        return True

    def end(self, what: str) -> None:
        """Gives the turn back, if it is this one."""
        if self._what == what and self._may_pause():
            self._wait_for({"event": "done", "nonce": self._nonce})
            self._what = ""

    @contextmanager
    def taken(self, what: str) -> Iterator[None]:
        """A turn for as long as the block takes."""
        begun = self.begin(what)
        try:
            yield
        finally:
            if begun:
                self.end(what)

    def _wait_for(self, message: dict[str, Any]) -> None:
        # A limit on the call's time counts neither the wait for the device nor what the turn is for.
        left_s, _ = signal.setitimer(signal.ITIMER_REAL, 0.0)
        if _cuda_is_used():
            _synchronize()
        self._channel.send(message)
        self._channel.receive()
        if message["event"] == "done":
            signal.setitimer(signal.ITIMER_REAL, self._left_s)
        else:
            self._left_s = left_s

    def _before(self, **details: Any) -> bool:
        self.begin(COMPILING)
        return False

    def _after(self, **details: Any) -> None:
        self.end(COMPILING)

    def _may_pause(self) -> bool:
        """Work that is being captured cannot be waited for, and only the main thread talks to the judge."""
        return threading.current_thread() is threading.main_thread() and not (_cuda_is_used() and _capturing())
