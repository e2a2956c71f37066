"""The nursery: loads torch and triton once, then forks one child for each candidate.

There are two, by the role that the engine names: `contestants` answers the judge, `compilers` compiles
ahead of time where there is no GPU. A nursery is single-threaded, never touches the GPU (a CUDA context
does not survive a fork), reaps every descendant of its children, and reports how each one ended. What a
child may do is bounded in `_become_child`, before anything of the candidate's is read.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.judging import sandbox_kernel
from engine.judging.sandbox import Sandbox
from engine.judging.sandbox_kernel import Ruleset
from engine.judging.wire import Channel, Message, WireClosed
from engine.judging.workers import lifetime

Serve = Callable[[socket.socket, Message], None]
"""What a child does with its connection and the engine's request."""


@dataclass(frozen=True, slots=True)
class _Fork:
    """A living child: the engine's number for it and its process id, which is also its group's."""

    number: int
    pid: int


class Nursery:
    """The loop: forks and kills on request, reports exits."""

    def __init__(self, channel: Channel, serve: Serve, sandbox: Sandbox, gpu: bool) -> None:
        """Takes what a child does, the sandbox of candidates, and whether children use a GPU."""
        self._channel = channel
        self._serve_child = serve
        self._sandbox = sandbox
        self._gpu = gpu
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
        rules = None
        try:
            if message["confined"]:
                rules = self._sandbox.prepare(message["scratch"], self._gpu)
            pid = os.fork()
        except OSError as error:
            _close(descriptors, rules)
            self._channel.send({"event": "unforked", "id": message["id"], "message": str(error)})
            return
        if pid == 0:
            status = 1
            try:
                connection = self._become_child(message, descriptors, nursery, rules)
                self._serve_child(connection, message)
                status = 0
            except WireClosed:
                status = 0
            finally:
                os._exit(status)
        _close(descriptors, rules)
        self._forks[pid] = _Fork(message["id"], pid)
        self._channel.send({"event": "forked", "id": message["id"], "pid": pid})

    def _become_child(
        self, message: Message, descriptors: list[int], nursery: int, rules: Ruleset | None
    ) -> socket.socket:
        """Gives a fresh fork its own session, files, environment and limits; its connection is what it keeps."""
        os.setsid()
        lifetime.die_with_parent(nursery)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        connection, log = descriptors
        silence = os.open(os.devnull, os.O_RDONLY)
        os.dup2(silence, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        lifetime.close_all_but({0, 1, 2, connection} | ({rules.fileno()} if rules is not None else set()))
        os.chdir(message["scratch"])
        os.environ.update(message["environment"])
        # It remembers the nursery's own folder.
        tempfile.tempdir = None
        lifetime.limit_resources(None if self._gpu else message["memory_bytes"])
        if message["confined"]:
            self._sandbox.enter(rules)
        if self._sandbox.exposes_workers:
            # CUDA writes its threads' names into /proc, which a process that hides may not.
            sandbox_kernel.hide_memory(False)
        return socket.socket(fileno=connection)

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


def _close(descriptors: list[int], rules: Ruleset | None) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
    if rules is not None:
        rules.close()


def _contestants(device: str, arch: str, most_tuned: int) -> Serve:
    """Loads what contestants need on the device, and gives what they do."""
    import torch

    if device == "cpu":
        # Triton decides by this when it is imported.
        os.environ["TRITON_INTERPRET"] = "1"
        torch.set_num_threads(1)
    import triton.language

    from engine.judging.workers import autotuning, contestant, launches

    assert triton.language
    launches.install(device, arch)
    if device != "cpu":
        autotuning.install(most_tuned)
        _load_driver_utilities()

    def serve(connection: socket.socket, message: Message) -> None:
        contestant.serve(connection, message["path"], device)

    return serve


def _load_driver_utilities() -> None:
    """Builds Triton's driver module once, which each contestant would build with a C compiler in its own cache.

    It only links to the driver's library; nothing is asked of the GPU. Where a version of Triton works
    otherwise, contestants build it themselves.
    """
    with contextlib.suppress(Exception):
        from triton.backends.nvidia import driver

        utilities: Any = driver.CudaUtils
        utilities()
        if hasattr(utilities, "instance"):
            utilities.__init__ = lambda self: None


def _compilers() -> Serve:
    """Loads Triton's compiler, and gives what a compiling child does."""
    from engine.judging.workers import compiler

    compiler.warm_up()

    def serve(connection: socket.socket, message: Message) -> None:
        channel = Channel(connection)
        request, _ = channel.receive()
        channel.send(compiler.compile_launches(request["source"], request["launches"], request["arch"]))

    return serve


def _versions() -> dict[str, str]:
    import torch
    import triton

    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "torch": str(torch.__version__),
        "triton": str(triton.__version__),
    }


def main(channel: Channel) -> None:
    """Loads what children need for the role and device that the engine names, then serves."""
    import torch

    assert torch
    message, _ = channel.receive()
    device = message["device"]
    serve = (
        _compilers() if message["role"] == "compilers" else _contestants(device, message["arch"], message["most_tuned"])
    )
    sandbox = Sandbox.from_json(message["sandbox"])
    if sandbox.exposes_workers:
        sandbox_kernel.hide_memory()
    lifetime.adopt_orphans()
    ready: dict[str, Any] = {"event": "ready", "toolchain": _versions(), "threads": len(os.listdir("/proc/self/task"))}
    gc.collect()
    gc.freeze()
    nursery = Nursery(channel, serve, sandbox, gpu=device != "cpu")
    channel.send(ready)
    nursery.serve()
