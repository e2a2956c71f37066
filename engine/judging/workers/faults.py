"""Turns what a candidate raised into a kind of verdict and one line that a person can act on."""

from __future__ import annotations

import errno
import traceback
import types
from typing import Any

MAX_LINE = 400
"""Characters kept of a reason; whole tracebacks go into the detail."""

MAX_DETAIL = 8000
"""Characters kept of a traceback."""

_OUT_OF_MEMORY_TEXTS = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "failed to allocate",
    # torch computes a storage's size in 64 bits before it asks the allocator.
    "Storage size calculation overflowed",
)
_MACHINE_ERRORS = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENFILE))
"""What the operating system says where a disk is full or broken, whoever asks."""

_MACHINE_TEXTS = (
    "uncorrectable ecc error",
    "no cuda-capable device",
    "system not yet initialized",
    "driver version is insufficient",
    "system has unsupported display driver",
    "busy or unavailable",
    "driver shutting down",
    "fallen off the bus",
    "hardware stack error",
    "no space left on device",
    "disk quota exceeded",
)
"""What CUDA, or a tool that Triton starts, says of a machine that fails."""

_COMPILER_ERRORS = ("CompilationError", "CompileTimeAssertionFailure", "OutOfResources", "PTXASError")


def one_line(text: object, limit: int = MAX_LINE) -> str:
    """Any text as one printable line of at most `limit` characters."""
    try:
        raw = str(text)
    except Exception as error:
        raw = f"<{type(error).__name__} while the message was made>"
    line = "".join(character if character.isprintable() else " " for character in raw[: 4 * limit])
    line = " ".join(line.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def fault_of(error: BaseException, path: str) -> dict[str, Any]:
    """The kind, message and detail of an exception that a candidate in the file `path` caused."""
    cause = _root(error)
    line = _line(error, path)
    place = f" (line {line})" if line else ""
    if isinstance(error, SystemExit):
        message = f"the candidate calls sys.exit({one_line(repr(error.code), 40)}){place}"
        return _fault("runtime_error", message, error, path)
    name = type(cause).__name__
    text = one_line(cause)
    if _is_the_machines(cause, text):
        return _fault("infrastructure_error", f"{name}: {text}{place}", error, path)
    if _is_out_of_memory(cause, text):
        return _fault("out_of_memory", f"{name}: {text}{place}", error, path)
    if isinstance(cause, SyntaxError):
        where = f" (line {cause.lineno})" if cause.lineno else ""
        return _fault("compile_error", f"{name}: {one_line(cause.msg)}{where}", error, path)
    kind = (
        "compile_error" if any(base.__name__ in _COMPILER_ERRORS for base in type(cause).__mro__) else "runtime_error"
    )
    return _fault(kind, f"{name}: {text}{place}" if text else f"{name}{place}", error, path)


def _root(error: BaseException) -> BaseException:
    """The exception that Triton's interpreter or compiler wrapped, where the wrapper adds nothing."""
    seen = 0
    while type(error).__name__ == "InterpreterError" and error.__cause__ is not None and seen < 20:
        error, seen = error.__cause__, seen + 1
    return error


def _is_the_machines(error: BaseException, text: str) -> bool:
    """Whether the machine failed; a candidate that pretends this is asked again, and never learned from."""
    if isinstance(error, OSError) and error.errno in _MACHINE_ERRORS:
        return True
    return isinstance(error, (RuntimeError, OSError)) and any(part in text.lower() for part in _MACHINE_TEXTS)


def _is_out_of_memory(error: BaseException, text: str) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, (RuntimeError, OSError)) and any(
        part.lower() in text.lower() for part in _OUT_OF_MEMORY_TEXTS
    )


def _line(error: BaseException, path: str) -> int | None:
    """The last line of the candidate's own file that the exception passed through."""
    found = None
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        for frame in traceback.extract_tb(current.__traceback__):
            if frame.filename == path and frame.lineno:
                found = frame.lineno
        current = current.__cause__
    return found


def _fault(kind: str, message: str, error: BaseException, path: str) -> dict[str, Any]:
    try:
        detail = "".join(traceback.format_exception(type(error), error, _own_part(error, path), chain=False))
    except Exception:
        detail = message
    return {"kind": kind, "message": one_line(message), "detail": detail.replace(path, "candidate.py")[-MAX_DETAIL:]}


def _own_part(error: BaseException, path: str) -> types.TracebackType | None:
    """The traceback from the first frame of the candidate's own file on; what called it is of no interest."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != path:
        trace = trace.tb_next
    return trace
