"""The driver for real terminals: lives through what a slow or broken line does to it.

Textual's own ends at the first bytes that are no UTF-8 (a mouse report cut short by a tmux reattach), or
at a report it cannot read, and spins when the terminal has gone.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from codecs import getincrementaldecoder
from collections.abc import Callable
from typing import IO

from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

LOOK_S = 0.1


class _Line:
    """The way to the terminal; once it is broken everything written is dropped, so that nobody waits for it."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._encoding: str = getattr(file, "encoding", None) or "utf-8"
        self._broken = False

    def write(self, text: str) -> int:
        """Writes, with `?` for what the terminal's encoding has not, or drops the text."""
        sent = text.encode(self._encoding, "replace").decode(self._encoding)
        self._try(lambda: self._file.write(sent))
        return len(text)

    def flush(self) -> None:
        """Sends what was written."""
        self._try(self._file.flush)

    def fileno(self) -> int:
        """The file's number."""
        return self._file.fileno()

    def isatty(self) -> bool:
        """Whether there is a terminal at the end."""
        return self._file.isatty()

    def _try(self, action: Callable[[], object]) -> None:
        if self._broken:
            return
        try:
            action()
        except OSError:
            self._broken = True


class SteadyDriver(LinuxDriver):
    """Reads keys with unreadable bytes replaced; a terminal that has gone ends the app like SIGHUP."""

    def __init__(
        self, app: App[object], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        assert self._file is not None
        self._file = _Line(self._file)  # type: ignore[assignment]

    def _get_terminal_size(self) -> tuple[int, int]:
        """The size that the terminal has, whatever an exported COLUMNS or LINES says."""
        for number in (self._file.fileno(), self.fileno):  # type: ignore[union-attr]
            with contextlib.suppress(OSError):
                width, height = os.get_terminal_size(number)
                if width and height:
                    return width, height
        return super()._get_terminal_size()

    def run_input_thread(self) -> None:
        """Waits for input and hands its events on until told to end."""
        decode = getincrementaldecoder("utf-8")("replace").decode
        parser = XTermParser(self._debug)
        while not self.exit_event.is_set():
            try:
                ready, _, _ = select.select([self.fileno], [], [], LOOK_S)
                data = os.read(self.fileno, 4096) if ready else None
            except OSError:
                data = b""
            if data == b"":
                os.kill(os.getpid(), signal.SIGHUP)
                return
            text = decode(data) if data else ""
            try:
                # An empty text would tell the parser that the input has ended.
                for event in parser.feed(text) if text else parser.tick():
                    self.process_message(event)
            except (ParseError, ValueError, IndexError):
                # One report that makes no sense is dropped; what follows is read from a clean start.
                parser = XTermParser(self._debug)
        with contextlib.suppress(EOFError, ParseError):
            for event in parser.feed(""):
                self.process_message(event)
