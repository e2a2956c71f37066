"""Who works on a run: one engine at a time, with a heartbeat and a fencing epoch.

Each write of an engine names its epoch; an engine that lost its lease can therefore change nothing,
even if it only believed itself dead.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlite_utils import Database

from engine.store.database import transaction

STALE_AFTER_S = 30.0
"""An engine on another host counts as dead after this many seconds without a heartbeat."""


class LeaseHeld(Exception):
    """Another engine works on the run; the message says which."""


class LeaseLost(Exception):
    """This engine's epoch is over; it must stop without writing."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The process behind a lease. `heartbeat_at` is in Unix seconds."""

    run: int
    epoch: int
    host: str
    pid: int
    process_started: str
    heartbeat_at: float
    released: bool

    @property
    def alive(self) -> bool:
        """Whether the holder still works: exact on this host, by heartbeat on others."""
        if self.released:
            return False
        if self.host == host_name():
            return process_started(self.pid) == self.process_started
        return time.time() - self.heartbeat_at < STALE_AFTER_S


def host_name() -> str:
    """This machine's name, by which engines and screens tell whether they share it."""
    return socket.gethostname()


def process_started(pid: int) -> str:
    """When a process began, in clock ticks since boot together with the boot, "" if there is none.

    The pair survives the reuse of process numbers. A zombie counts as gone.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return _alive_without_proc(pid)
    return "" if fields[0] in "ZX" else f"{boot}:{fields[19]}"


def _alive_without_proc(pid: int) -> str:
    if Path("/proc/self/stat").exists():
        return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "unknown"


def holder_of(connection: sqlite3.Connection, run: int) -> Holder | None:
    """Reads who holds, or last held, a run's lease."""
    row = connection.execute(
        "SELECT run, epoch, host, pid, process_started, heartbeat_at, released FROM leases WHERE run = ?", (run,)
    ).fetchone()
    return None if row is None else Holder(row[0], row[1], row[2], row[3], row[4], row[5], bool(row[6]))


def take(connection: sqlite3.Connection, run: int) -> int:
    """Takes a run's lease for this process and returns the new epoch; needs an open write transaction.

    Raises:
        LeaseHeld: a living engine holds it.
    """
    holder = holder_of(connection, run)
    if holder is not None and holder.alive:
        raise LeaseHeld(
            f"run {run} is already worked on by process {holder.pid} on {holder.host}; "
            f"attach to it, or stop it with: kernelgrove stop {run}"
        )
    epoch = 1 if holder is None else holder.epoch + 1
    now = time.time()
    connection.execute(
        "INSERT OR REPLACE INTO leases (run, epoch, host, pid, process_started, taken_at, heartbeat_at, released)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, 0)",
        (run, epoch, host_name(), os.getpid(), process_started(os.getpid()), now, now),
    )
    return epoch


def check(connection: sqlite3.Connection, run: int, epoch: int) -> None:
    """Makes sure that `epoch` still holds the lease; needs an open write transaction.

    Raises:
        LeaseLost: another engine has taken over.
    """
    row = connection.execute("SELECT epoch, released FROM leases WHERE run = ?", (run,)).fetchone()
    if row is None or row[0] != epoch or row[1]:
        raise LeaseLost(f"another engine has taken over run {run}")


@contextmanager
def leased(db: Database, run: int, epoch: int) -> Iterator[sqlite3.Connection]:
    """Runs the block in one write transaction of the engine that holds the run's lease.

    Raises:
        LeaseLost: another engine has taken over.
    """
    with transaction(db) as connection:
        check(connection, run, epoch)
        yield connection
