"""The lives of processes: who dies with whom, and how a candidate's descendants are found and ended.

Linux only; standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, argument: int) -> None:
    if _libc.prctl(option, argument, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def die_with_parent(parent: int) -> None:
    """Has the kernel kill this process when its parent ends; ends at once when `parent` already has."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def outlive_parent() -> None:
    """Takes `die_with_parent` back, for a process that notices by itself and has something left to do then."""
    _prctl(_PR_SET_PDEATHSIG, 0)


def adopt_orphans() -> None:
    """Makes this process the new parent of descendants whose own parent ended, so that none escapes."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children() -> list[int]:
    """The process ids of this process's children, zombies included."""
    try:
        return [int(word) for word in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except OSError:
        return _children_by_scan()


def _children_by_scan() -> list[int]:
    """As `children`, where the kernel does not list them."""
    found = []
    me = os.getpid()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # The name in parentheses may hold spaces; the parent's id is the second field behind it.
                if int(Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[1]) == me:
                    found.append(int(entry))
    return found


def kill_group(leader: int) -> None:
    """Kills the process group that `leader` leads."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def end_orphans(known: set[int], limit: int = 100_000) -> int:
    """Kills and reaps every child that is not `known`, and those that they leave behind.

    Needs `adopt_orphans`. Returns how many there were; `limit` bounds a race with a fork bomb.
    """
    ended = 0
    while ended < limit:
        strangers = [pid for pid in children() if pid not in known]
        if not strangers:
            break
        for pid in strangers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in strangers:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
                ended += 1
    return ended


def close_all_but(keep: set[int]) -> None:
    """Closes every descriptor of this process but those in `keep`."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            # The descriptor that listed the folder is closed already.
            with contextlib.suppress(OSError):
                os.close(int(name))


def limit_resources(memory_bytes: int | None, file_bytes: int = 4 << 30) -> None:
    """Bounds what this process may take from now on.

    Args:
        memory_bytes: address space it may add to what it has; None leaves it free, since a CUDA
            context reserves more than any machine has.
        file_bytes: the largest file it may write.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    if memory_bytes is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        bound = pages * resource.getpagesize() + memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
