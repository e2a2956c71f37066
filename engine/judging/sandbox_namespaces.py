"""The namespaces that judge and nursery share and nobody else is in: user, processes, network, IPC.

They are entered once, in the common parent of judge and nursery: CUDA hands memory from one process to
another only within one set of them. Linux only; standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.judging import sandbox_kernel as kernel
from engine.judging.workers import lifetime

USER, PROCESSES, NETWORK, IPC = "user", "processes", "network", "ipc"
NAMESPACES = (USER, PROCESSES, NETWORK, IPC)

_FLAGS = {
    USER: kernel.CLONE_NEWUSER,
    # Only a view of /proc of its own makes the numbers in it those that its processes know.
    PROCESSES: kernel.CLONE_NEWPID | kernel.CLONE_NEWNS,
    NETWORK: kernel.CLONE_NEWNET,
    IPC: kernel.CLONE_NEWIPC,
}


class NotPermitted(Exception):
    """The kernel or its administrator does not allow these namespaces; the message says at which step."""


@dataclass(frozen=True, slots=True)
class Entered:
    """The namespaces that were entered, and the process that is number one in them; None without `processes`."""

    names: tuple[str, ...]
    first: int | None


def offers(wanted: Sequence[str], root: bool) -> list[tuple[str, ...]]:
    """The sets of namespaces worth trying, the strongest first; root may do without a user namespace."""
    best = tuple(name for name in NAMESPACES if name in wanted)
    without = [{PROCESSES}] if not root else [{USER}, {PROCESSES}, {USER, PROCESSES}]
    found = [best, *(tuple(name for name in best if name not in leave) for leave in without)]
    usable = [names for names in dict.fromkeys(found) if names and (root or USER in names)]
    return list(dict.fromkeys(usable))


def strongest(wanted: Sequence[str], readable: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Finds out in child processes which namespaces can be entered; what is missing comes with the kernel's reason.

    Args:
        wanted: the namespaces to try.
        readable: files that must stay readable inside.
    """
    problem = ""
    for names in offers(wanted, os.geteuid() == 0):
        failure = _try(names, readable)
        if not failure:
            return names, problem
        problem = problem or failure
    return (), problem


def _try(names: Sequence[str], readable: Sequence[str]) -> str:
    """Why a child process cannot enter the namespaces and work in them; empty where it can."""

    def attempt() -> None:
        entered = enter(names)
        for path in readable:
            if not os.access(path, os.R_OK):
                raise NotPermitted(f"{path} cannot be read inside")
        if entered.first is not None:
            child = os.fork()
            if child == 0:
                os._exit(0 if lifetime.children() == [] else 1)
            if os.waitpid(child, 0)[1] != 0:
                raise NotPermitted("a process inside is not found in /proc")
            leave(entered)

    return _in_child(attempt)


def _in_child(work: Callable[[], None]) -> str:
    """Runs `work` in a fork; its failure in words, empty where it succeeded."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(read)
            work()
            status = 0
        except BaseException as error:
            words = str(error) if isinstance(error, NotPermitted) else traceback.format_exception_only(error)[-1]
            with contextlib.suppress(OSError):
                os.write(write, words.strip().encode()[:500])
        finally:
            os._exit(status)
    os.close(write)
    with open(read, "rb") as pipe:
        words = pipe.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    return words or ("" if status == 0 else f"a trial process ended with status {status}")


def enter(names: Sequence[str]) -> Entered:
    """Moves this process, which must have one thread, into new namespaces.

    With `processes`, children of this process live inside under the process that is returned as `first`,
    and end when it does; this process itself stays outside, where they cannot see it.

    Raises:
        NotPermitted: the kernel refuses; this process may be half inside and must not go on.
    """
    # Those of this network namespace, before it is left.
    sockets = list(_named_sockets()) if PROCESSES in names else []
    _step("a new user namespace", _enter_user_namespace if USER in names else None)
    flags = 0
    for name in names:
        flags |= _FLAGS[name] if name != USER else 0
    _step("new namespaces", (lambda: kernel.unshare(flags)) if flags else None)
    first = None
    if PROCESSES in names:
        _step("private mounts", lambda: kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE))
        first = _start_first()
    if USER in names:
        # No process inside may make a namespace in which it is root again.
        with contextlib.suppress(OSError):
            Path("/proc/sys/user/max_user_namespaces").write_text("0")
    if first is not None:
        _keep_system_settings()
        _own_shared_memory()
        _cover(sockets)
    return Entered(tuple(names), first)


def leave(entered: Entered) -> int:
    """Ends every process inside and reaps them; returns how many there were, the first one not counted.

    The kernel gives process number one back only after all others are gone.
    """
    ended = 0
    if entered.first is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(entered.first, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, 0)[0] != entered.first or _more_children():
                ended += 1
    return ended


def _more_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def _step(name: str, work: Callable[[], None] | None) -> None:
    if work is None:
        return
    try:
        work()
    except OSError as error:
        raise NotPermitted(f"{name}: {error.strerror}") from error


def _enter_user_namespace() -> None:
    """Enters a user namespace in which every user and group that can be mapped keeps its number."""
    users, groups = _identity("/proc/self/uid_map"), _identity("/proc/self/gid_map")
    target = os.getpid()
    ready_read, ready_write = os.pipe()
    # A map of more than one's own number can be written only from outside, by root.
    writer = os.fork()
    if writer == 0:
        status = 1
        try:
            os.close(ready_write)
            os.read(ready_read, 1)
            _write_maps(target, users, groups)
            status = 0
        finally:
            os._exit(status)
    os.close(ready_read)
    try:
        kernel.unshare(kernel.CLONE_NEWUSER)
        os.write(ready_write, b"1")
    finally:
        os.close(ready_write)
        _, status = os.waitpid(writer, 0)
    if status != 0:
        raise NotPermitted("users cannot be mapped into a new user namespace")


def _write_maps(target: int, users: str, groups: str) -> None:
    folder = Path("/proc", str(target))
    try:
        (folder / "uid_map").write_text(users)
        (folder / "gid_map").write_text(groups)
    except PermissionError:
        uid, gid = os.geteuid(), os.getegid()
        (folder / "setgroups").write_text("deny")
        (folder / "uid_map").write_text(f"{uid} {uid} 1\n")
        (folder / "gid_map").write_text(f"{gid} {gid} 1\n")


def _identity(path: str) -> str:
    """The map that gives a new namespace the same numbers as this one."""
    lines = []
    for line in Path(path).read_text().splitlines():
        inside, _, count = line.split()
        lines.append(f"{inside} {inside} {count}\n")
    return "".join(lines)


def _start_first() -> int:
    """Starts process number one, which mounts /proc for all and then only reaps."""
    parent = os.getpid()
    read, write = os.pipe()
    first = os.fork()
    if first == 0:
        try:
            os.close(read)
            # Its own number is 1 and its parent's 0, so that the usual check for a parent that died cannot be made.
            lifetime.die_with_parent(0)
            kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
            os.write(write, b"ready")
            _reap_forever()
        except OSError as error:
            with contextlib.suppress(OSError):
                os.write(write, f"!mounting /proc: {error.strerror}".encode())
        finally:
            os._exit(1)
    os.close(write)
    with open(read, "rb") as pipe:
        answer = pipe.read(5)
        if answer != b"ready":
            words = (answer + pipe.read()).decode(errors="replace").lstrip("!")
            os.waitpid(first, 0)
            raise NotPermitted(words or f"process {first} of {parent} ended at once")
    return first


def _reap_forever() -> None:
    for descriptor in range(3, 256):
        with contextlib.suppress(OSError):
            os.close(descriptor)
    # What process number one has no handler for, it cannot be hit by from inside.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    os.chdir("/")
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            signal.sigwait({signal.SIGCHLD})


def _keep_system_settings() -> None:
    """Makes /proc/sys read-only: its files ask only whether the writer is user 0, whatever rights it gave up."""
    with contextlib.suppress(OSError):
        kernel.mount("/proc/sys", "/proc/sys", None, kernel.MS_BIND)
        flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
        kernel.mount("none", "/proc/sys", None, kernel.MS_BIND | kernel.MS_REMOUNT | kernel.MS_RDONLY | flags)


def _own_shared_memory() -> None:
    """Gives the processes inside a /dev/shm of their own, through which CUDA's memory handles are counted."""
    if os.path.isdir("/dev/shm"):
        with contextlib.suppress(OSError):
            kernel.mount("tmpfs", "/dev/shm", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=1777")


def _named_sockets() -> Iterable[str]:
    """Sockets that have a path, which no version of Landlock in use forbids to connect to; the GPU driver's stay."""
    yield from ("/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock")
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/unix").read_text(errors="surrogateescape").splitlines()[1:]:
            path = line.split(maxsplit=7)[7:]
            if path and path[0].startswith("/") and "nvidia" not in path[0]:
                yield path[0]


def _cover(sockets: Iterable[str]) -> None:
    """Puts an empty file over each socket, so that nobody inside can talk to what listens there."""
    for path in dict.fromkeys(os.path.realpath(path) for path in sockets):
        with contextlib.suppress(OSError, ValueError):
            if stat.S_ISSOCK(os.stat(path).st_mode):
                kernel.mount("/dev/null", path, None, kernel.MS_BIND)
