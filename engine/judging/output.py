"""What a candidate prints: read as it comes, kept up to a bound, dropped beyond it."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import fcntl
import os
from collections.abc import Callable

_CHUNK = 1 << 20


class Output:
    """The engine's end of the pipe that a contestant's stdout and stderr go into."""

    def __init__(self, limit: int, on_text: Callable[[str], None] | None) -> None:
        """Opens the pipe; `writer` is for the contestant.

        Args:
            limit: bytes that are kept.
            on_text: is handed the kept part as it arrives.
        """
        self._limit = limit
        self._on_text = on_text
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._kept: list[str] = []
        self._size = 0
        self._reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._reader, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._reader, fcntl.F_SETPIPE_SZ, _CHUNK)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._reader, self._read)
        self._open = True

    def started(self) -> None:
        """Closes the writing end here, once the contestant has it."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def _read(self) -> bool:
        """Reads once; whether there may be more."""
        try:
            chunk = os.read(self._reader, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self._loop.remove_reader(self._reader)
            return False
        room = max(0, self._limit - self._size)
        self._size += len(chunk)
        if room:
            text = self._decoder.decode(chunk[:room])
            self._kept.append(text)
            if self._on_text is not None and text:
                self._on_text(text)
        return True

    def finish(self) -> str:
        """Takes what is still in the pipe, closes it, and returns what was kept."""
        if self._open:
            self._open = False
            # Bounded, in case a process that escaped goes on writing.
            for _ in range(64):
                if not self._read():
                    break
            self._loop.remove_reader(self._reader)
            os.close(self._reader)
            self.started()
        dropped = self._size - self._limit
        note = f"\n[{dropped} more bytes were dropped]\n" if dropped > 0 else ""
        return "".join(self._kept) + note
