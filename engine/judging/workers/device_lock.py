"""One GPU shared by every run on this host: checked by many at a time, timed by one.

The lock is a file named after the GPU, so that it holds between users, runs and databases.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from engine.judging.workers.answerer import NO_TURNS, Answerer
from engine.judging.workers.turns import COMPILING, TUNING

FOLDER = Path("/tmp")
"""The same for everyone, whatever TMPDIR says."""

Waiting = Callable[[str], None]
"""Is told what is waited for when a wait begins, and an empty text when it ends."""

ANOTHER_CANDIDATE, ANOTHER_SEARCH = "another candidate", "another search on this machine"


class DeviceLock:
    """Shared while candidates are checked, exclusive while one is timed."""

    def __init__(self, device: str, folder: Path = FOLDER) -> None:
        """Names the lock after a device's unique id."""
        safe = "".join(character for character in device if character.isalnum() or character == "-")
        self._path = folder / f"kernelgrove-{safe}.lock"
        # Whoever wants the device alone closes the gate, so that a stream of checks cannot keep it out.
        self._gate = threading.Lock()
        self._ours: set[int] = set()

    @contextmanager
    def shared(self, waiting: Waiting) -> Iterator[None]:
        """Holds the device together with others; `waiting` is told of a wait."""
        with self._held(fcntl.LOCK_SH, waiting, close_gate=False):
            yield

    @contextmanager
    def shared_by_turns(self, answerer: Answerer, waiting: Waiting) -> Iterator[None]:
        """Holds the device together with others; not while a process compiles, and alone while it tunes."""
        with ExitStack() as held:
            held.enter_context(self.shared(waiting))

            @contextmanager
            def away() -> Iterator[None]:
                held.close()
                try:
                    yield
                finally:
                    held.enter_context(self.shared(waiting))

            @contextmanager
            def alone() -> Iterator[None]:
                with away(), self.exclusive(waiting):
                    yield

            answerer.turns = {COMPILING: away, TUNING: alone}
            try:
                yield
            finally:
                answerer.turns = dict(NO_TURNS)

    @contextmanager
    def exclusive(self, waiting: Waiting) -> Iterator[None]:
        """Holds the device alone; `waiting` is told of a wait."""
        with self._held(fcntl.LOCK_EX, waiting, close_gate=True):
            yield

    @contextmanager
    def _held(self, kind: int, waiting: Waiting, close_gate: bool) -> Iterator[None]:
        descriptor = self._open()
        kept = False
        try:
            if not (self._gate.acquire(blocking=False)):
                waiting(ANOTHER_CANDIDATE)
                self._gate.acquire()
                waiting("")
            kept = True
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting(ANOTHER_CANDIDATE if self._ours else ANOTHER_SEARCH)
                fcntl.flock(descriptor, kind)
                waiting("")
            self._ours.add(descriptor)
            if not close_gate:
                self._gate.release()
                kept = False
            yield
        finally:
            self._ours.discard(descriptor)
            os.close(descriptor)
            if kept:
                self._gate.release()

    def _open(self) -> int:
        # Linux refuses O_CREAT on another user's file in a sticky folder, and locking needs no more than reading.
        while True:
            try:
                return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                try:
                    return os.open(self._path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
                except FileExistsError:
                    continue
