"""One interpreting and one compiling process for all tests of this folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
CANDIDATES = HERE.parents[2] / "candidates" / "modelling"
KERNELS = CANDIDATES / "kernels.py"


class Worker:
    """A process that answers lines of JSON."""

    def __init__(self, script: str, *arguments: str, cache: Path) -> None:
        root = HERE.parents[3]
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        environment |= {"PYTHONPATH": str(root), "TRITON_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the worker ended"
        reply: dict[str, Any] = json.loads(line)
        return reply

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)


class Bench:
    """Records, samples and compiles calls of a module of kernels."""

    def __init__(self, interpreter: Worker, compiler: Worker) -> None:
        self._interpreter = interpreter
        self._compiler = compiler

    def sample(
        self, call: str, *inputs: tuple[int, ...], dtype: str = "float32", path: Path = KERNELS, **options: Any
    ) -> dict[str, Any]:
        shapes = [{"shape": list(shape), "dtype": dtype} for shape in inputs]
        return self._interpreter.ask(how="sample", path=str(path), call=call, inputs=shapes, options=options)

    def record(
        self,
        call: str,
        *inputs: tuple[int, ...],
        expected: str,
        dtype: str = "float32",
        path: Path = KERNELS,
        **options: Any,
    ) -> dict[str, Any]:
        shapes = [{"shape": list(shape), "dtype": dtype} for shape in inputs]
        return self._interpreter.ask(
            how="record", path=str(path), call=call, inputs=shapes, options=options, expected=expected
        )

    def compile(self, launches: list[dict[str, Any]], source: str | None = None, arch: str = "sm_90") -> dict[str, Any]:
        return self._compiler.ask(source=source or KERNELS.read_text(), launches=launches, arch=arch)


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    cache = tmp_path_factory.mktemp("triton")
    workers = [
        Worker("interpreted_worker.py", "sm_90", cache=cache),
        Worker("compiling_worker.py", cache=cache),
    ]
    yield Bench(*workers)
    for worker in workers:
        worker.end()
