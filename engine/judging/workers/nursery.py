"""The nursery: loads torch and triton once, then forks one contestant for each candidate.

It is single-threaded, never touches the GPU (a CUDA context does not survive a fork), reaps every
descendant of its contestants, and reports how each one ended. What a contestant may do is bounded
here, in `_become_contestant`; a stricter sandbox belongs in the same place.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
from dataclasses import dataclass
from typing import Any

from engine.judging.wire import Channel, Message, WireClosed
from engine.judging.workers import lifetime


@dataclass(frozen=True, slots=True)
class _Fork:
    """A living child: the engine's number for it and its process id, which is also its group's."""

    number: int
    pid: int


class Nursery:
    """The loop: forks and kills on request, reports exits."""

    def __init__(self, channel: Channel, device: str) -> None:
        self._channel = channel
        self._device = device
        self._forks: dict[int, _Fork] = {}
        self._wakeup, wakeup_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Runs until the engine hangs up; then every contestant dies with this process."""
        while True:
            readable, _, _ = select.select([self._channel.fileno(), self._wakeup], [], [])
            if self._wakeup in readable:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wakeup, 4096)
                self._reap()
            if self._channel.fileno() in readable:
                try:
                    message, descriptors = self._channel.receive(max_descriptors=4)
                except WireClosed:
                    break
                self._answer(message, descriptors)
        for fork in self._forks.values():
            lifetime.kill_group(fork.pid)
        lifetime.end_orphans(set())

    def _answer(self, message: Message, descriptors: list[int]) -> None:
        if message["op"] == "fork":
            self._fork(message, descriptors)
        elif message["op"] == "kill":
            fork = next((fork for fork in self._forks.values() if fork.number == message["id"]), None)
            if fork is not None:
                lifetime.kill_group(fork.pid)
                # Before its `setsid` a fresh child leads no group yet.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(fork.pid, signal.SIGKILL)

    def _fork(self, message: Message, descriptors: list[int]) -> None:
        nursery = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            for descriptor in descriptors:
                os.close(descriptor)
            self._channel.send({"event": "unforked", "id": message["id"], "message": str(error)})
            return
        if pid == 0:
            status = 1
            try:
                _become_contestant(message, descriptors, nursery, self._device)
                status = 0
            except WireClosed:
                status = 0
            finally:
                os._exit(status)
        for descriptor in descriptors:
            os.close(descriptor)
        self._forks[pid] = _Fork(message["id"], pid)
        self._channel.send({"event": "forked", "id": message["id"], "pid": pid})

    def _reap(self) -> None:
        ended: list[tuple[_Fork, int]] = []
        for pid, fork in list(self._forks.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del self._forks[pid]
                # The group outlives its leader as long as it has members.
                lifetime.kill_group(pid)
                ended.append((fork, status))
        orphans = lifetime.end_orphans(set(self._forks))
        for fork, status in ended:
            self._channel.send(
                {
                    "event": "exited",
                    "id": fork.number,
                    "code": os.waitstatus_to_exitcode(status),
                    "orphans": orphans,
                }
            )


def _become_contestant(message: Message, descriptors: list[int], nursery: int, device: str) -> None:
    """Turns a fresh fork into the contestant: its own session, files, environment and limits."""
    from engine.judging.workers import contestant

    os.setsid()
    lifetime.die_with_parent(nursery)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    connection, log = descriptors
    silence = os.open(os.devnull, os.O_RDONLY)
    os.dup2(silence, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    contestant.clean_up_after_fork({0, 1, 2, connection})
    os.chdir(message["scratch"])
    os.environ.update(message["environment"])
    lifetime.limit_resources(message["memory_bytes"] if device == "cpu" else None)
    contestant.serve(socket.socket(fileno=connection), message["path"], device)


def _versions() -> dict[str, str]:
    import torch
    import triton

    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "torch": str(torch.__version__),
        "triton": str(triton.__version__),
    }


def main(channel: Channel) -> None:
    """Loads what contestants need for the device that the engine names, then serves."""
    import torch

    message, _ = channel.receive()
    device = message["device"]
    if device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
        torch.set_num_threads(1)
    import triton
    import triton.language

    # What contestants import on their way is loaded before the first fork.
    from engine.judging.workers import contestant, launches

    if device == "cpu":
        from engine.judging.workers import emulation, libdevice

        libdevice.install()
        emulation.install()
    launches.install(device)
    assert contestant and triton
    lifetime.adopt_orphans()
    ready: dict[str, Any] = {"event": "ready", "toolchain": _versions(), "threads": len(os.listdir("/proc/self/task"))}
    gc.collect()
    gc.freeze()
    nursery = Nursery(channel, device)
    channel.send(ready)
    nursery.serve()
