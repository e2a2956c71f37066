"""Lets others have the GPU while a candidate compiles: it tells the judge, and waits for its turn afterwards.

Runs in the contestant. Compiling takes seconds on the host and nothing on the device; a candidate that is
timed must not wait for it.
"""

from __future__ import annotations

import signal
import threading
from typing import Any

import torch

from engine.judging.wire import Channel

_capturing = torch.cuda.is_current_stream_capturing
_synchronize = torch.cuda.synchronize


class CompileTurns:
    """Tells the judge before and after each compilation while a question is being answered."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._nonce = ""
        self._compiling = False

    def install(self) -> None:
        """Registers with Triton, which calls the one hook before and the other after it compiles a kernel."""
        from triton import knobs

        knobs.runtime.jit_cache_hook = self._before
        knobs.runtime.jit_post_compile_hook = self._after

    def answering(self, nonce: str) -> None:
        """The question that is answered from now on; an empty one when it has been."""
        self._nonce, self._compiling = nonce, False

    def _before(self, **details: Any) -> bool:
        if self._nonce and not self._compiling and self._may_pause():
            _synchronize()
            self._channel.send({"event": "compiling", "nonce": self._nonce})
            self._compiling = True
        return False

    def _after(self, **details: Any) -> None:
        if not self._compiling or not self._may_pause():
            return
        # A limit on the call's time does not count the wait for the device.
        left, _ = signal.setitimer(signal.ITIMER_REAL, 0.0)
        self._channel.send({"event": "compiled", "nonce": self._nonce})
        self._channel.receive()
        self._compiling = False
        signal.setitimer(signal.ITIMER_REAL, left)

    def _may_pause(self) -> bool:
        """Work that is being captured cannot be waited for, and only the main thread talks to the judge."""
        return threading.current_thread() is threading.main_thread() and not _capturing()
