"""Runs probes in a process of their own, in whichever interpreter has Triton."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from skills.errors import ProbeUnavailable
from skills.probes import ProbeOutcome

SCRIPT = Path(__file__).with_name("triton_probe.py")

START_TIMEOUT_S = 60.0
"""How long an interpreter may take to import Triton on a loaded machine with a cold disk."""

END_TIMEOUT_S = 5.0

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)


class SubprocessProbeRunner:
    """A `ProbeRunner` that starts one process for each call and compiles each probe in a fork of it.

    Args:
        python: the interpreter whose Triton is asked.
        arch: what to compile for, like `sm_90`.
        timeout_s: seconds that one probe may take.
    """

    def __init__(self, python: str = sys.executable, arch: str = "sm_90", timeout_s: float = 30.0) -> None:
        self._python = python
        self._arch = arch
        self._timeout_s = timeout_s
        self._toolchain: str | None = None

    def toolchain(self) -> str:
        """Versions and architecture, asked once: `triton 3.7.1, sm_90`.

        Raises:
            ProbeUnavailable: if the interpreter cannot be started or has no Triton.
        """
        if self._toolchain is None:
            for _ in self.compile(()):
                pass
        assert self._toolchain is not None
        return self._toolchain

    def compile(self, sources: Sequence[str]) -> Iterator[ProbeOutcome]:
        """Yield one outcome for each source, in order; closing the iterator early ends the process.

        Raises:
            ProbeUnavailable: if the interpreter cannot be started, has no Triton, or stops answering.
        """
        with tempfile.TemporaryDirectory(prefix="kernelgrove-") as folder, tempfile.TemporaryFile() as errors:
            process = self._start(folder, errors)
            try:
                answers = _Answers(process, errors)
                self._ask(process, sources)
                header = answers.next(START_TIMEOUT_S)
                if "error" in header:
                    raise ProbeUnavailable(
                        f"{self._python} cannot compile probes: {header['error']}. "
                        "Name an interpreter that has Triton, or an architecture like sm_90."
                    )
                self._toolchain = f"triton {header['triton']}, {header['arch']}"
                for _ in sources:
                    # The process keeps the probe's own time; the rest is for starting and writing.
                    yield ProbeOutcome(**answers.next(self._timeout_s + START_TIMEOUT_S))
            finally:
                _end(process)

    def _start(self, folder: str, errors: IO[bytes]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                [self._python, str(SCRIPT), "--watch-stdin"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=_environment(folder),
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise ProbeUnavailable(f"{self._python} cannot be started: {error.strerror}.") from error

    def _ask(self, process: subprocess.Popen[bytes], sources: Sequence[str]) -> None:
        """Send the request and leave standard input open: its closing tells the process to end."""
        assert process.stdin is not None
        request = {"arch": self._arch, "timeout_s": self._timeout_s, "sources": list(sources)}
        data = memoryview(json.dumps(request).encode() + b"\n")
        with contextlib.suppress(BrokenPipeError):  # then there is no answer either, and that is reported
            while data:
                data = data[process.stdin.write(data) or 0 :]


def _environment(folder: str) -> dict[str, str]:
    """The environment without secrets and without settings that change what Triton accepts.

    Probes are code that others may have written.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not _SECRET.search(name) and (not name.startswith("TRITON_") or name.endswith("_PATH"))
    }
    return {**kept, "TMPDIR": folder, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class _Answers:
    """The lines of JSON that the process writes."""

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors
        self._pending = b""

    def next(self, patience_s: float) -> dict[str, Any]:
        """The next answer.

        Raises:
            ProbeUnavailable: if the process ends or stays silent for longer than `patience_s`.
        """
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        deadline = time.monotonic() + patience_s
        while b"\n" not in self._pending:
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise ProbeUnavailable(f"The process that compiles probes gave no answer for {patience_s:g} s.")
            chunk = os.read(pipe, 65_536)
            if not chunk:
                raise ProbeUnavailable(f"The process that compiles probes {self._ending()}.")
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _ending(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        last = self._errors.read()[-2_000:].decode("utf-8", "replace").strip().rpartition("\n")[2]
        return f"ended with code {code}: {last or 'it printed nothing'}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the process's standard input, at which it ends its children and itself; kill it if it does not."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
