"""Other people's processes that compute on the device, as the engine sees them: whom timing waits for.

The engine looks and not the judge, which sees only its own processes inside the sandbox. Searches of
this program take turns by the device's lock, so that their processes are no neighbours.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from engine.judging.nvml import NvmlDevice, now_s

PATIENCE_S = 30.0
"""How long timing waits for one process in all; after that it is measured beside it."""

_POLL_S = 0.5
_RECENT_S = 2.0
"""How long ago a process may have computed and still count: the driver's samples come about every second."""

_LEAST_SHARE = 5
"""The percentage of the device that a process must use to disturb."""

_OURS = b"engine.judging.workers"
"""In the command line of every process that judges."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A process of other people, and the largest share of the device in percent that it used of late."""

    pid: int
    name: str
    share: int

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name}) computes on it"


class Neighbours:
    """Who else computes on one device."""

    def __init__(self, device: NvmlDevice, processes: Path = Path("/proc"), poll_s: float = _POLL_S) -> None:
        """Takes the device, where processes are listed, and how often to look while waiting."""
        self._device = device
        self._processes = processes
        self._poll_s = poll_s
        self._waited: dict[int, float] = {}

    @classmethod
    def open(cls, uuid: str, judge: int) -> Self | None:
        """The neighbours on a GPU; None where they cannot be told from our own processes.

        Args:
            uuid: the GPU's id.
            judge: the number of a process of ours that has a context on it. Where the driver lists it under another
                number, or not at all, its numbers are not those of this machine's processes.
        """
        device = NvmlDevice.open(uuid)
        if device is None or judge not in (device.pids() or ()):
            return None
        return cls(device)

    def active(self, since_s: float | None = None) -> list[Neighbour]:
        """Those that computed since a moment in Unix time, or of late; the busiest first."""
        since_s = now_s() - _RECENT_S if since_s is None else since_s
        found = [
            Neighbour(pid, self._name(pid), share)
            for pid, share in self._device.activity(since_s).items()
            if share >= _LEAST_SHARE and self._is_foreign(pid)
        ]
        return sorted(found, key=lambda neighbour: -neighbour.share)

    async def quiet(self, waiting: Callable[[str], None]) -> None:
        """Returns when nobody else computes, or patience with those who do is at an end.

        Args:
            waiting: is told for whom, whenever that changes, and an empty text at the end if it was told anything.
        """
        told = ""
        while neighbours := [n for n in self.active() if self._waited.get(n.pid, 0.0) < PATIENCE_S]:
            if str(neighbours[0]) != told:
                told = str(neighbours[0])
                waiting(told)
            await asyncio.sleep(self._poll_s)
            for neighbour in neighbours:
                self._waited[neighbour.pid] = self._waited.get(neighbour.pid, 0.0) + self._poll_s
        if told:
            waiting("")

    def _is_foreign(self, pid: int) -> bool:
        """Whether a living process is neither this engine's nor one that takes the device's lock."""
        command = self._read(pid, "cmdline")
        return command is not None and _OURS not in command and not self._descends_from_here(pid)

    def _descends_from_here(self, pid: int) -> bool:
        for _ in range(64):
            if pid == os.getpid():
                return True
            status = self._read(pid, "stat")
            if status is None or pid <= 1:
                return False
            pid = int(status.rpartition(b")")[2].split()[1])
        return False

    def _name(self, pid: int) -> str:
        return (self._read(pid, "comm") or b"?").decode(errors="replace").strip()

    def _read(self, pid: int, file: str) -> bytes | None:
        try:
            return (self._processes / str(pid) / file).read_bytes()
        except OSError:
            return None


def to_json(neighbours: list[Neighbour]) -> list[dict[str, Any]]:
    """Neighbours as they are stored with a measurement."""
    return [{"pid": n.pid, "name": n.name, "share": n.share} for n in neighbours]
