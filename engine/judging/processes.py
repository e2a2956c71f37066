"""Starts the judge's processes: a named interpreter, a clean environment, one socket to the engine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import engine
from engine.judging.facts import MachineError
from engine.judging.wire import AsyncChannel

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
_SINGLE_THREADED = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def clean_environment(home: Path, device: str, single_threaded: bool) -> dict[str, str]:
    """What a worker may know of our environment: paths and GPU settings, and no key of anyone.

    Args:
        home: the private folder that stands for HOME, temporary files and caches.
        device: `auto`, `cpu` or `cuda:N`; the GPU with that number becomes the only one that is seen.
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
class Worker:
    """A running process of the judge and the engine's channel to it."""

    name: str
    process: asyncio.subprocess.Process
    channel: AsyncChannel
    log: Path

    def last_words(self) -> str:
        """The last line that the process wrote on its way out; empty where there is none."""
        with contextlib.suppress(OSError):
            lines = self.log.read_text(errors="replace").strip().splitlines()
            return lines[-1][:300] if lines else ""
        return ""

    async def end(self) -> None:
        """Kills the process and reaps it; its children die with it."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        self.channel.close()


async def start(name: str, module: str, python: str, folder: Path, environment: Mapping[str, str]) -> Worker:
    """Starts the worker whose `main(channel)` is in `module`.

    Args:
        name: what the worker is called in messages and files.
        module: the worker's module inside `engine`.
        python: the interpreter.
        folder: a private folder; the worker runs in it and its output is kept there.
        environment: the worker's whole environment.

    Raises:
        MachineError: the interpreter cannot be started.
    """
    ours, theirs = socket.socketpair()
    log = folder / f"{name}.log"
    package = str(Path(engine.__file__).parent)
    try:
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                python,
                "-c",
                _BOOTSTRAP,
                package,
                module,
                str(theirs.fileno()),
                str(os.getpid()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=folder,
                env=dict(environment),
                pass_fds=[theirs.fileno()],
                # A Ctrl-C in the terminal is the engine's to handle.
                start_new_session=True,
            )
    except OSError as error:
        ours.close()
        raise MachineError(f"the interpreter {python} cannot be started: {error.strerror}.") from error
    finally:
        theirs.close()
    return Worker(name, process, AsyncChannel(ours), log)
