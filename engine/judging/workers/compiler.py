"""Compiles recorded launches ahead of time, for machines without a GPU.

Runs without TRITON_INTERPRET, in a process that may die: the candidate's module is executed in it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.errors import CompilationError, CompileTimeAssertionFailure
from triton.runtime import jit

from engine.judging.devices import Device, device_for
from engine.judging.workers import emulation
from engine.judging.workers.resources import code_fingerprint, inspect_ptx, resource_usage
from engine.judging.workers.specialise import decode_constant, decode_type

Json = dict[str, Any]

MAX_DETAIL = 8000
"""Characters of compiler output that are kept."""


class CompileFailure(Exception):
    """One kernel cannot be compiled: which, and one sentence why."""

    def __init__(self, kernel: str | None, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.kernel = kernel
        self.message = message
        self.detail = detail


def compile_launches(source: str, launches: Sequence[Mapping[str, Any]], arch: str) -> Json:
    """Compiles every distinct launch of a candidate for an architecture such as `sm_90`.

    Executes the module's text in this process and sends Triton's output to a file. Launches are what
    `recorder.Launch.to_json` gives.

    Returns:
        `kernels`, one entry for each distinct launch key: what `resources` finds, `num_warps`, `num_stages`,
        `shared_bytes`; `error`, None or an object with `kernel`, `message` (one line) and `detail`;
        `fingerprint`, a hash of the code and the launches, None after an error.
    """
    device = device_for(arch)
    kernels: list[Json] = []
    with _captured_output() as output:
        try:
            found = _load_kernels(source)
            for launch in launches:
                if launch.get("kind", "launch") != "launch" or any(item["key"] == launch["key"] for item in kernels):
                    continue
                kernels.append(_compile(launch, found, device))
            error = None
        except CompileFailure as failure:
            detail = "\n".join(part for part in (failure.detail, output()) if part)
            error = {"kernel": failure.kernel, "message": failure.message, "detail": detail[-MAX_DETAIL:]}
    return {
        "kernels": kernels,
        "error": error,
        "fingerprint": None if error else _fingerprint(kernels, launches),
    }


def _fingerprint(kernels: Sequence[Json], launches: Sequence[Mapping[str, Any]]) -> str:
    codes = {item["key"]: item["code"] for item in kernels}
    parts = []
    for launch in launches:
        if launch.get("kind", "launch") == "launch":
            parts.append(f"{codes[launch['key']]} {launch['grid']}")
        else:
            parts.append(f"{launch['op']} {launch['read_bytes']} {launch['write_bytes']}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@functools.cache
def _emulate() -> None:
    """Has questions about the GPU answered here as in the contestant."""
    emulation.install()
    emulation.enter()


def _load_kernels(source: str) -> list[Any]:
    """Executes a module and gives every Triton function that came to be, in order."""
    _emulate()
    made: list[Any] = []
    original = jit.JITFunction.__init__

    def remember(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        made.append(self)

    jit.JITFunction.__init__ = remember
    try:
        _execute(source)
    except Exception as error:
        reason = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
        raise CompileFailure(None, f"the module cannot be imported: {reason}", traceback.format_exc()) from error
    finally:
        jit.JITFunction.__init__ = original
    return made


def _execute(source: str) -> ModuleType:
    # Triton reads a kernel's text from its file, so that there must be one; the folder goes with the process.
    folder = tempfile.mkdtemp(prefix="candidate-")
    path = Path(folder) / "candidate.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = module
    spec.loader.exec_module(module)
    return module


def _find(found: Sequence[Any], qualname: str, line: int | None) -> Any:
    named = [kernel for kernel in found if kernel.fn.__qualname__ == qualname]
    exact = [kernel for kernel in named if line is None or kernel.fn.__code__.co_firstlineno == line]
    return (exact or named or [None])[-1]


def _compile(launch: Mapping[str, Any], found: Sequence[Any], device: Device) -> Json:
    name = str(launch["kernel"])
    kernel = _find(found, str(launch["qualname"]), launch.get("line"))
    if kernel is None:
        raise CompileFailure(
            name, f"kernel {name} is made while the model runs: define it at the top of the module to have it compiled"
        )
    constants = {
        tuple(entry["path"]): decode_constant(entry["value"], lambda module, qualname: _find(found, qualname, None))
        for entry in launch["constants"]
    }
    source = ASTSource(
        kernel,
        {key: decode_type(kind) for key, kind in launch["signature"].items()},
        constants,
        {tuple(entry["path"]): [list(item) for item in entry["value"]] for entry in launch["attributes"]},
    )
    try:
        compiled = triton.compile(
            source, target=GPUTarget("cuda", device.capability, 32), options=dict(launch["options"])
        )
    except Exception as error:
        raise CompileFailure(name, _one_line(kernel, found, error), str(error)) from error
    metadata = compiled.metadata
    if metadata.shared > device.shared_per_program:
        raise CompileFailure(
            name,
            f"kernel {name} needs {metadata.shared:,} bytes of shared memory, {device.arch} has "
            f"{device.shared_per_program:,}: use smaller tiles or a smaller num_stages",
        )
    usage = resource_usage(compiled.asm["cubin"])
    ptx = compiled.asm["ptx"]
    return {
        "key": launch["key"],
        "kernel": name,
        "arch": device.arch,
        "registers": usage["registers"],
        "spills": usage["stack_bytes"] // 4,
        "shared_bytes": int(metadata.shared),
        "num_warps": int(metadata.num_warps),
        "num_stages": int(metadata.num_stages),
        "num_ctas": int(getattr(metadata, "num_ctas", 1)),
        **inspect_ptx(ptx),
        "code": code_fingerprint(ptx, metadata.name, {"warps": metadata.num_warps, "shared": metadata.shared}),
    }


def _one_line(kernel: Any, found: Sequence[Any], error: BaseException) -> str:
    """Which kernel, which line of the module, and what the compiler objects to."""
    name = kernel.fn.__name__
    innermost: BaseException = error
    deepest: CompilationError | None = None
    while True:
        if isinstance(innermost, CompilationError):
            deepest = innermost
        following = innermost.__cause__
        if following is None:
            break
        innermost = following
    where = ""
    if deepest is not None and deepest is not innermost and not isinstance(innermost, CompilationError):
        text = f"{type(innermost).__name__}: {innermost}"
        if isinstance(innermost, AssertionError | ValueError) and str(innermost):
            text = str(innermost)
    elif deepest is not None:
        text = deepest.error_message or f"{_source_line(deepest)} is not allowed"
        if isinstance(deepest, CompileTimeAssertionFailure):
            text = f"{_source_line(deepest)} does not hold{': ' + text if deepest.error_message else ''}"
    else:
        text = f"{type(error).__name__}: {error}"
    line = getattr(getattr(deepest, "node", None), "lineno", None)
    home = next((part for part in (kernel, *found) if deepest is not None and part.src == deepest.src), None)
    if home is not None and line is not None:
        where = f" at line {_first_line(home) + line - 1}"
    lines = [part.strip() for part in text.strip().splitlines() if part.strip()]
    reason = next((part for part in lines if "error" in part.lower()), lines[0]) if lines else "no message"
    # Triton passes some exceptions on as their repr.
    quoted = re.fullmatch(r"(\w+)\(([\"'])(.*)\2,?\)", reason)
    if quoted:
        reason = f"{quoted[1]}: {quoted[3]}"
    return f"kernel {name} does not compile{where}: {reason}"[:400]


def _source_line(error: CompilationError) -> str:
    lines = (error.src or "").splitlines()
    number = getattr(error.node, "lineno", 0)
    return lines[number - 1].strip() if 0 < number <= len(lines) else type(error).__name__


def _first_line(kernel: Any) -> int:
    """The module's line on which the kernel's `def` stands; Triton drops the decorators above it."""
    for offset, text in enumerate(kernel.raw_src):
        if text.lstrip().startswith("def "):
            return int(kernel.starting_line_number) + offset
    return int(kernel.starting_line_number)


@contextlib.contextmanager
def _captured_output() -> Iterator[Callable[[], str]]:
    """Sends this process's standard output and error to a file while active; gives what was written."""
    with tempfile.TemporaryFile() as file:
        sys.stdout.flush()
        sys.stderr.flush()
        kept = [os.dup(1), os.dup(2)]
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)

        def text() -> str:
            sys.stdout.flush()
            sys.stderr.flush()
            file.seek(0)
            return file.read(1 << 20).decode(errors="replace")

        try:
            yield text
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for target, descriptor in zip((1, 2), kept, strict=True):
                os.dup2(descriptor, target)
                os.close(descriptor)


_WARM_UP = """
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 0.0)
"""


def warm_up(arch: str = "sm_90") -> None:
    """Compiles a little kernel for an architecture, so that later forks find the compiler loaded.

    Raises:
        RuntimeError: where Triton's compiler does not work.
    """
    launch = {
        "key": "warm-up",
        "kernel": "kernel",
        "qualname": "kernel",
        "grid": [1, 1, 1],
        "signature": {"x_ptr": "*fp32", "BLOCK": "constexpr"},
        "constants": [{"path": [1], "value": 128}],
        "attributes": [],
        "options": {},
    }
    answer = compile_launches(_WARM_UP, [launch], arch)
    if answer["error"] is not None:
        raise RuntimeError(f"Triton's compiler does not work here: {answer['error']['message']}")
