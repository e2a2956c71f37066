"""Looks at the machine's processes, to prove that none is left behind."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path


def parents() -> dict[int, int]:
    """The parent of every process that is not a zombie."""
    found: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] not in "ZX":
                found[int(entry.name)] = int(fields[1])
    return found


def descendants(pid: int) -> set[int]:
    """All living processes below one."""
    above = parents()
    below = {pid}
    while True:
        more = {child for child, parent in above.items() if parent in below} - below
        if not more:
            return below - {pid}
        below |= more


def alive(pids: Iterable[int]) -> set[int]:
    """Those of the given processes that still live."""
    return set(pids) & set(parents())


def until(condition: Callable[[], bool], timeout_s: float = 30.0, what: str = "the condition") -> None:
    """Waits for a condition.

    Raises:
        TimeoutError: it did not come true in time.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come true within {timeout_s:.0f} s")
        time.sleep(0.02)


def kill(pid: int) -> None:
    """Kills a process the hard way."""
    os.kill(pid, 9)
