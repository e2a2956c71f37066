"""The engine's side of the lowering process: starts it, asks it, restarts it if it dies. Imports no torch."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import engine
from engine.lowering.structure import Parameters, Value
from engine.records import Task

OPEN_SECONDS = 300.0
"""How long the first lowering of a task may take, the import of torch included."""

RENDER_SECONDS = 60.0
"""How long the text of one module may take."""

_LINE_LIMIT = 64 << 20
_KEPT = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "LANG", "LC_ALL", "CUDA_HOME", "CUDA_PATH", "CC")


class LoweringError(Exception):
    """The lowering process could not do what was asked; the text is one sentence."""


@dataclass(frozen=True, slots=True)
class StructureSummary:
    """What the engine knows of a structure; its text is rendered by the lowering process."""

    name: str
    idea: str
    defaults: Mapping[str, Value]
    choices: Mapping[str, tuple[Value, ...]]


@dataclass(frozen=True, slots=True)
class LoweredTask:
    """The structures of a task, the compiler's own first, and a sentence for each one that was not possible."""

    structures: tuple[StructureSummary, ...]
    reasons: tuple[str, ...]


class LoweringClient:
    """One lowering process. Use as an async context manager; requests are answered one at a time."""

    def __init__(self, python: str = sys.executable) -> None:
        self._python = python
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._log: IO[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._lock = asyncio.Lock()
        self._opened: dict[str, Any] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self, task: Task, arch: str, dtype: str | None = None) -> LoweredTask:
        """Lowers a task and returns its structures.

        Args:
            task: its first case says which sizes are timed.
            arch: the architecture to lower for, such as "sm_90".
            dtype: what floating inputs and weights are cast to; None keeps the task's own.

        Raises:
            LoweringError: the process failed; a task that merely fits no structure gives reasons instead.
        """
        overrides = {name: value for name, value in task.cases[0].overrides.items() if _is_plain(value)}
        request = {"do": "open", "source": task.source, "overrides": overrides, "arch": arch, "dtype": dtype}
        async with self._lock:
            self._opened = None
            answer = await self._ask(request, OPEN_SECONDS)
            self._opened = request
        structures = tuple(
            StructureSummary(s["name"], s["idea"], s["defaults"], {k: tuple(v) for k, v in s["choices"].items()})
            for s in answer["structures"]
        )
        return LoweredTask(structures, tuple(answer["reasons"]))

    async def render(self, structure: str, parameters: Parameters) -> str:
        """The text of a module with chosen parameters, for a structure of the task that was opened.

        Raises:
            LoweringError: no such structure, parameters that make no sense together, or the process failed.
        """
        async with self._lock:
            if self._opened is None:
                raise LoweringError("No task has been opened for lowering.")
            if self._process is None:
                await self._ask(self._opened, OPEN_SECONDS)
            request = {"do": "render", "structure": structure, "parameters": dict(parameters)}
            answer = await self._ask(request, RENDER_SECONDS)
        return str(answer["text"])

    async def close(self) -> None:
        """Ends the process."""
        async with self._lock:
            await self._end()

    async def _ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        try:
            async with asyncio.timeout(seconds):
                if self._process is None:
                    await self._start()
                assert self._reader is not None and self._writer is not None
                self._writer.write(json.dumps(request).encode() + b"\n")
                await self._writer.drain()
                line = await self._reader.readline()
        except TimeoutError:
            await self._end()
            raise LoweringError(f"The lowering process did not answer within {seconds:g} s and was ended.") from None
        except OSError as error:
            last = self._last_words()
            await self._end()
            raise LoweringError(f"The lowering process cannot be reached: {last or error}.") from error
        except asyncio.CancelledError:
            await self._end()
            raise
        if not line:
            last = self._last_words()
            await self._end()
            raise LoweringError("The lowering process ended" + (f": {last}" if last else " without a word."))
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise LoweringError(str(answer["error"]))
        return answer

    async def _start(self) -> None:
        ours, theirs = socket.socketpair()
        self._folder = tempfile.TemporaryDirectory(prefix="kernelgrove-lowering-", ignore_cleanup_errors=True)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        try:
            self._process = await asyncio.create_subprocess_exec(
                self._python,
                "-m",
                "engine.lowering.server",
                str(theirs.fileno()),
                str(os.getpid()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                cwd=self._folder.name,
                env=_environment(Path(self._folder.name)),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        finally:
            theirs.close()
        self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=_LINE_LIMIT)

    def _last_words(self) -> str:
        if self._log is None:
            return ""
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - 4000))
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else ""

    async def _end(self) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        if self._log is not None:
            self._log.close()
        if self._folder is not None:
            self._folder.cleanup()
        self._process = self._reader = self._writer = self._log = self._folder = None


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, int | float | str | bool | list | dict)


def _environment(folder: Path) -> dict[str, str]:
    """What the process may know: paths, no key of anyone, no GPU, private caches."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    package_root = str(Path(engine.__file__).parent.parent)
    return kept | {
        "PYTHONPATH": os.pathsep.join(filter(None, (package_root, kept.get("PYTHONPATH")))),
        "PYTHONSAFEPATH": "1",
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "CUDA_VISIBLE_DEVICES": "",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
