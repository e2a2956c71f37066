"""Starts the judge's processes: a named interpreter, a clean environment, a sandbox, one socket to the engine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import engine
from engine.judging.facts import MachineError
from engine.judging.sandbox import Sandbox
from engine.judging.wire import AsyncChannel, WireClosed, WireError

_BOOTSTRAP = """
import sys, types
sys.path[:] = [entry for entry in sys.path if entry]
package = types.ModuleType("engine")
package.__path__ = [sys.argv[1]]
sys.modules["engine"] = package
from engine.judging.workers.startup import run
run(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
"""
"""Registers our package by its folder, so that none of our site-packages leak into a foreign interpreter."""

_KEPT = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "LANG", "LC_ALL", "CC", "CUDA_HOME", "CUDA_PATH")
_KEPT_PREFIXES = ("CUDA_", "NVIDIA_", "TRITON_")
_CLOSE_TIMEOUT_S = 15.0
_SINGLE_THREADED = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def clean_environment(home: Path, device: str, single_threaded: bool) -> dict[str, str]:
    """What a worker may know of our environment: paths and GPU settings, and no key of anyone.

    Args:
        home: the private folder that stands for HOME, temporary files and caches.
        device: `auto`, `cpu` or `cuda:N`; the GPU with that number becomes the only one that is seen, with `cpu` none.
        single_threaded: for a process that forks, which must have one thread when it does.
    """
    kept = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith(_KEPT_PREFIXES)}
    kept.pop("TRITON_INTERPRET", None)
    # Packages that a person installed for themselves stay visible although HOME is another.
    kept["PYTHONUSERBASE"] = os.environ.get("PYTHONUSERBASE", str(Path.home() / ".local"))
    # The default changes in Triton 3.10; results of two versions must not differ by it.
    kept.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    if single_threaded:
        kept |= dict.fromkeys(_SINGLE_THREADED, "1")
    kind, _, number = device.partition(":")
    if kind == "cuda" and number.isdigit():
        visible = [entry.strip() for entry in kept.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry.strip()]
        kept["CUDA_VISIBLE_DEVICES"] = visible[int(number)] if int(number) < len(visible) else number
    elif kind == "cpu":
        # Where there is a GPU, nothing that is judged without it may find it.
        kept["CUDA_VISIBLE_DEVICES"] = ""
    return kept | private_folders(home)


def private_folders(home: Path) -> dict[str, str]:
    """The variables that keep temporary files and caches inside `home`."""
    return {
        "HOME": str(home),
        "TMPDIR": str(home),
        "TRITON_CACHE_DIR": str(home / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(home / "inductor"),
        "XDG_CACHE_HOME": str(home / "cache"),
    }


@dataclass(slots=True)
class Process:
    """A process under the launcher, by its number on this machine."""

    pid: int
    ended: asyncio.Future[int]

    @property
    def returncode(self) -> int | None:
        """The exit code, a signal's number negative; None while the process lives."""
        return self.ended.result() if self.ended.done() else None

    async def wait(self) -> int:
        """Waits for the end of the process; its exit code."""
        return await asyncio.shield(self.ended)


@dataclass(slots=True)
class Worker:
    """A running process of the judge and the engine's channel to it."""

    name: str
    process: Process
    channel: AsyncChannel
    log: Path

    def last_words(self) -> str:
        """The last line that the process wrote on its way out; empty where there is none."""
        return last_line(self.log)


class Launcher:
    """The common parent of all workers, which has entered the sandbox's namespaces for them.

    After `open`, `sandbox` has the layers in force and `refused` the kernel's reason against the others.
    """

    def __init__(self, python: str, folder: Path, device: str) -> None:
        """Takes the interpreter, a folder for logs, and the device, as `JudgeSettings` has them."""
        self.sandbox = Sandbox((), 0)
        self.refused = ""
        self._python = python
        self._folder = folder
        self._device = device
        self._log = folder / "launcher.log"
        self._process: asyncio.subprocess.Process | None = None
        self._channel: AsyncChannel | None = None
        self._following: asyncio.Task[None] | None = None
        self._starting: dict[int, asyncio.Future[Process]] = {}
        self._running: dict[int, Process] = {}
        self._next = 1

    async def open(self, layers: Sequence[str], readable: Sequence[str]) -> None:
        """Starts the launcher and has it enter namespaces.

        Args:
            layers: what is wanted, names out of `sandbox.LAYERS`.
            readable: files that must stay readable inside.

        Raises:
            MachineError: the interpreter cannot be started, or the launcher fails.
        """
        ours, theirs = socket.socketpair()
        environment = clean_environment(self._folder, self._device, single_threaded=True)
        try:
            with self._log.open("ab") as output:
                self._process = await asyncio.create_subprocess_exec(
                    self._python,
                    # It needs the standard library only, and starts sooner without looking for anything else.
                    *("-I", "-S"),
                    *_command("engine.judging.workers.launcher"),
                    str(theirs.fileno()),
                    str(os.getpid()),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=self._folder,
                    env=environment,
                    pass_fds=[theirs.fileno()],
                    # A Ctrl-C in the terminal is the engine's to handle.
                    start_new_session=True,
                )
        except OSError as error:
            ours.close()
            raise MachineError(f"the interpreter {self._python} cannot be started: {error.strerror}.") from error
        finally:
            theirs.close()
        self._channel = AsyncChannel(ours)
        try:
            await self._channel.send({"layers": list(layers), "readable": list(readable), "device": self._device})
            ready = await self._channel.receive()
        except WireClosed as error:
            code = await self._process.wait()
            words = last_line(self._log) or f"exit code {code}"
            raise MachineError(f"nothing can be started with {self._python}: {words}.") from error
        if ready["event"] == "failed":
            raise MachineError(f"the judge's processes cannot be started: {ready['message']}.")
        self.sandbox = Sandbox.from_json(ready["sandbox"])
        self.refused = str(ready["problem"])
        self._following = asyncio.ensure_future(self._follow(self._channel))

    async def start(self, name: str, module: str, folder: Path, environment: Mapping[str, str]) -> Worker:
        """Starts the worker whose `main(channel)` is in `module`.

        Args:
            name: what the worker is called in messages and files.
            module: the worker's module inside `engine`.
            folder: a private folder; the worker runs in it and its output is kept there.
            environment: the worker's whole environment.

        Raises:
            MachineError: the launcher is gone.
        """
        assert self._channel is not None
        number, self._next = self._next, self._next + 1
        started = self._starting[number] = asyncio.get_running_loop().create_future()
        ours, theirs = socket.socketpair()
        log = folder / f"{name}.log"
        request = {
            "op": "start",
            "id": number,
            "command": [self._python, *_command(module)],
            "folder": str(folder),
            "environment": dict(environment),
        }
        try:
            with theirs, log.open("ab") as output:
                await self._channel.send(request, [output.fileno(), theirs.fileno()])
                process = await started
        except WireClosed as error:
            ours.close()
            raise MachineError(f"the {name} cannot be started: {last_line(self._log) or error}.") from error
        except BaseException:
            ours.close()
            raise
        return Worker(name, process, AsyncChannel(ours), log)

    async def _follow(self, channel: AsyncChannel) -> None:
        problem: Exception = WireClosed("the launcher ended")
        try:
            while True:
                message = await channel.receive()
                if message["event"] == "started":
                    process = Process(message["pid"], asyncio.get_running_loop().create_future())
                    self._running[message["id"]] = process
                    self._starting.pop(message["id"]).set_result(process)
                elif message["event"] == "ended":
                    self._running.pop(message["id"]).ended.set_result(message["code"])
        except (WireClosed, WireError) as error:
            problem = error
        finally:
            for waiting in self._starting.values():
                if not waiting.done():
                    waiting.set_exception(problem)
            for process in self._running.values():
                process.ended.set_result(-signal.SIGKILL)

    async def close(self) -> None:
        """Ends every worker and everything that they started; returns when all are gone."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        if self._channel is not None:
            self._channel.close()
        if self._process is None:
            return
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


def _command(module: str) -> list[str]:
    """What an interpreter is told to run a worker's module, without the descriptor and the parent that follow."""
    return ["-c", _BOOTSTRAP, str(Path(engine.__file__).parent), module]


def last_line(log: Path) -> str:
    """The last line of a log, cut to what fits into a sentence; empty where there is none."""
    with contextlib.suppress(OSError):
        lines = log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else ""
    return ""
