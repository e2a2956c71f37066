"""Runs the cockpit in a child, so that someone is left to restore the terminal when it dies hard."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import termios
from collections.abc import Callable
from types import FrameType
from typing import Any

LEAVE = (
    "\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l"  # mouse
    "\x1b[?2004l\x1b[?1004l\x1b[?2048l\x1b[<u"  # paste, focus, resize reports, keyboard protocol
    "\x1b[?7h\x1b[?1049l\x1b[?25h\x1b[0m"  # wrapping, screen, cursor, colours
)


def guarded(body: Callable[[], int]) -> int:
    """Runs `body` in a child process and returns its status.

    Without a terminal, `body` runs here. A child that is killed leaves a terminal as it was before.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty() and hasattr(os, "fork")):
        return body()
    before = termios.tcgetattr(sys.stdin.fileno())
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _be_the_child(body)
    return _watch(child, before)


def _be_the_child(body: Callable[[], int]) -> None:
    """Runs the body; leaves without the clean-up that is the parent's."""
    code = 1
    try:
        code = body()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _watch(child: int, before: list[Any]) -> int:
    """Waits for the child; stops with it, passes signals on, and cleans up behind it."""

    def pass_on(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    handlers: dict[int, Any] = {signal.SIGTERM: pass_on, signal.SIGHUP: pass_on, signal.SIGINT: signal.SIG_IGN}
    saved = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        while True:
            _, status = os.waitpid(child, os.WUNTRACED)
            if os.WIFSTOPPED(status):
                # The shell must see its job stop; it continues both of us together.
                os.kill(os.getpid(), signal.SIGSTOP)
            elif os.WIFSIGNALED(status):
                number = os.WTERMSIG(status)
                _restore(before)
                print(
                    f"The cockpit was ended by signal {number} ({signal.Signals(number).name}); searches go on. "
                    "Open it again with: kernelgrove",
                    file=sys.stderr,
                )
                return 128 + number
            else:
                return os.waitstatus_to_exitcode(status)
    finally:
        for number, handler in saved.items():
            signal.signal(number, handler)


def _restore(before: list[Any]) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(LEAVE)
        sys.stderr.flush()
    with contextlib.suppress(OSError, ValueError, termios.error):
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, before)
