"""The common parent of judge and nursery: enters the sandbox's namespaces once, then starts and reaps them.

It stays outside the process namespace itself, so that nothing inside can see or signal it, and it ends
everything inside when the engine says so or is gone. It loads no torch.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys

from engine.judging import sandbox, sandbox_namespaces
from engine.judging.sandbox_namespaces import NAMESPACES, Entered, NotPermitted
from engine.judging.wire import Channel, Message, WireClosed
from engine.judging.workers import lifetime

_DRIVER_TIMEOUT_S = 30.0


class Launcher:
    """The loop: starts and kills workers on request, reports their ends."""

    def __init__(self, channel: Channel, entered: Entered) -> None:
        self._channel = channel
        self._entered = entered
        self._workers: dict[int, int] = {}
        self._wakeup, wakeup_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Runs until the engine hangs up; then nothing that was started here is left."""
        try:
            while True:
                readable, _, _ = select.select([self._channel.fileno(), self._wakeup], [], [])
                if self._wakeup in readable:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wakeup, 4096)
                    self._reap()
                if self._channel.fileno() in readable:
                    message, descriptors = self._channel.receive(max_descriptors=2)
                    if message["op"] == "start":
                        self._start(message, descriptors)
                    elif message["op"] == "kill" and message["pid"] in self._workers:
                        os.kill(message["pid"], signal.SIGKILL)
        except WireClosed:
            pass
        finally:
            self._end_all()

    def _start(self, message: Message, descriptors: list[int]) -> None:
        parent = 0 if self._entered.first is not None else os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                _become(message, descriptors, parent)
            finally:
                os._exit(127)
        for descriptor in descriptors:
            os.close(descriptor)
        self._workers[pid] = message["id"]
        self._channel.send({"event": "started", "id": message["id"], "pid": pid})

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            number = self._workers.pop(pid, None)
            if number is not None:
                code = os.waitstatus_to_exitcode(status)
                self._channel.send({"event": "ended", "id": number, "code": code})

    def _end_all(self) -> None:
        if self._entered.first is not None:
            sandbox_namespaces.leave(self._entered)
        else:
            lifetime.end_orphans(set())


def _become(message: Message, descriptors: list[int], parent: int) -> None:
    """Turns a fresh fork into a worker: its own session, its log, its socket to the engine as descriptor 3."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Out of the way of the numbers that they are about to get.
    log, connection = (fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 16) for descriptor in descriptors)
    silence = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for source, target in ((silence, 0), (log, 1), (log, 2), (connection, 3)):
        os.dup2(source, target)
    os.chdir(message["folder"])
    arguments = [*message["command"], "3", str(parent)]
    try:
        os.execvpe(arguments[0], arguments, message["environment"])
    except OSError as error:
        os.write(2, f"{arguments[0]} cannot be started: {error.strerror}\n".encode())


def _load_driver() -> None:
    """Has the GPU driver's files made: inside a user namespace nobody may load modules or make devices."""
    tool = shutil.which("nvidia-modprobe")
    if tool is not None:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                [tool, "-u", "-c=0"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_DRIVER_TIMEOUT_S,
                check=False,
            )


def _enter(asked: tuple[str, ...], readable: list[str]) -> tuple[Entered, str]:
    """Enters what is permitted of the namespaces asked for; says why some are missing."""
    names, problem = sandbox_namespaces.strongest([name for name in asked if name in NAMESPACES], readable)
    if not names:
        return Entered((), None), problem
    return sandbox_namespaces.enter(names), problem


def main(channel: Channel) -> None:
    """Enters the layers that the engine asks for, says which are in force, and serves."""
    engine = os.getppid()
    message, _ = channel.receive()
    asked = tuple(message["layers"])
    if message["device"] != "cpu":
        _load_driver()
    try:
        entered, problem = _enter(asked, [sys.executable, os.__file__, *message["readable"]])
    except NotPermitted as error:
        advice = f"set {sandbox.VARIABLE}=off to judge without a sandbox"
        channel.send({"event": "failed", "kind": "machine", "message": f"{error} is not permitted; {advice}"})
        return
    if entered.first is None:
        # Descendants that escape their own parents come here; all are ended when the engine hangs up.
        lifetime.adopt_orphans()
        lifetime.outlive_parent()
    else:
        # New credentials can make the kernel forget this.
        lifetime.die_with_parent(engine)
    launcher = Launcher(channel, entered)
    channel.send(
        {
            "event": "ready",
            "sandbox": sandbox.Sandbox.with_namespaces(asked, entered.names).to_json(),
            "problem": problem,
        }
    )
    launcher.serve()
