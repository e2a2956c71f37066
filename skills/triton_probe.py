"""Compiles probes for a named architecture ahead of time; needs no GPU.

A script of its own for whichever interpreter has Triton: it imports the standard library and Triton
and nothing of this package. It reads one line of JSON from standard input:

    {"arch": "sm_90", "timeout_s": 30.0, "sources": ["...", ...]}

and writes to the original standard output one line of JSON about the toolchain, then one for each
source in order, as soon as it is known:

    {"triton": "3.7.1", "python": "3.11.7", "arch": "sm_90"}        or {"error": "..."}, and ends
    {"ok": true, "stage": "compile", "message": "", "seconds": 0.1}

`stage` is how far a probe came: `load` (the module or its description is unusable), `compile` (Triton
was asked), `crash` (the process died) or `timeout`. Each probe runs in a fork of the warm process, so
that a crash takes no other one along; all else that probes or compilers print is kept for messages.

A probe is a complete Python module with one top-level kernel and its description:

    SIGNATURE = {"x": "*fp32", "n": "i32", "BLOCK": "constexpr"}    each parameter and its Triton type
    CONSTEXPRS = {"BLOCK": 128}                                     the value of each constexpr
    OPTIONS = {"num_warps": 4}                                      optional compile options
    KERNEL = "kernel"                                               needed if there are several jit functions
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import platform
import re
import resource
import select
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MAX_MESSAGE = 8_000
MAX_FILE_BYTES = 256 * 2**20
PR_SET_PDEATHSIG = 1


class UnusableProbe(Exception):
    """The module does not describe one kernel to compile."""


def find_kernel(module: Any) -> Any:
    """The kernel that a probe's module defines.

    Raises:
        UnusableProbe: if there is none, or several and no KERNEL that says which.
    """
    from triton.runtime.jit import JITFunction

    kernels = {}
    for name, value in vars(module).items():
        while value is not None and not isinstance(value, JITFunction):
            value = getattr(value, "fn", None)  # autotune and heuristics wrap the kernel
        if value is not None and value.fn.__module__ == module.__name__:
            kernels[name] = value
    wanted = getattr(module, "KERNEL", None)
    if wanted is not None:
        if wanted not in kernels:
            raise UnusableProbe(f"KERNEL is {wanted!r}, and the module has no kernel of that name")
        return kernels[wanted]
    if len(kernels) != 1:
        found = ", ".join(kernels) or "none"
        raise UnusableProbe(f"one kernel is needed (found: {found}); with several jit functions, KERNEL names it")
    return next(iter(kernels.values()))


def describe(module: Any, kernel: Any) -> tuple[dict[str, str], dict[str, Any], dict[str, Any]]:
    """Signature, constexprs and options of a probe, checked against the kernel's parameters.

    Raises:
        UnusableProbe: if they are missing or do not fit.
    """
    parts = [getattr(module, name, {}) for name in ("SIGNATURE", "CONSTEXPRS", "OPTIONS")]
    if not all(isinstance(part, dict) for part in parts):
        raise UnusableProbe("SIGNATURE, CONSTEXPRS and OPTIONS are dictionaries")
    signature, constexprs, options = parts
    if list(signature) != list(kernel.arg_names):
        raise UnusableProbe(f"SIGNATURE must name the parameters {', '.join(kernel.arg_names)} in this order")
    declared = {name for name, kind in signature.items() if kind == "constexpr"}
    if declared != set(constexprs):
        raise UnusableProbe(f"CONSTEXPRS must give values to exactly these: {', '.join(sorted(declared)) or 'none'}")
    return signature, constexprs, options


def messages(error: BaseException) -> str:
    """The error and its causes, each with its type: Triton hides the reason in the innermost one."""
    parts: list[str] = []
    seen: BaseException | None = error
    while seen is not None and len(parts) < 8:
        parts.append(f"{type(seen).__name__}: {seen}")
        seen = seen.__cause__
    return "\n".join(parts)


def compile_probe(path: Path, target: Any) -> dict[str, Any]:
    """Load and compile the probe in a file; return its outcome, whatever it does short of dying."""
    import triton
    from triton.compiler import ASTSource

    stage = "load"
    try:
        # importlib needs a name that no installed module has; Triton reads the source from the file.
        spec = importlib.util.spec_from_file_location("kernelgrove_probe", path)
        if spec is None or spec.loader is None:
            raise UnusableProbe("the file cannot be imported")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        kernel = find_kernel(module)
        signature, constexprs, options = describe(module, kernel)
        stage = "compile"
        triton.compile(ASTSource(fn=kernel, signature=signature, constexprs=constexprs), target=target, options=options)
    except BaseException as error:  # a probe may call sys.exit, which is an answer like any other
        return {"ok": False, "stage": stage, "message": messages(error)}
    return {"ok": True, "stage": stage, "message": ""}


def run_child(path: Path, target: Any, answer: int, log: Path) -> None:
    """The forked process of one probe: writes its outcome to the pipe `answer` and never returns."""
    try:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
        printed = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        outcome = compile_probe(path, target)
        outcome["message"] = shorten(outcome["message"])
        with os.fdopen(answer, "w", encoding="utf-8", errors="replace") as stream:
            json.dump(outcome, stream)
    finally:
        os._exit(0)


def shorten(text: str) -> str:
    """The beginning and the end of a long text: the source it quotes stands in the middle."""
    return text if len(text) <= MAX_MESSAGE else f"{text[:2_000]}\n...\n{text[-(MAX_MESSAGE - 2_000) :]}"


def judge(
    source: str, number: int, folder: Path, target: Any, timeout_s: float, lifeline: int | None
) -> dict[str, Any]:
    """Compile one probe in a child and return its outcome; kill the child when its time is over."""
    path, log = folder / f"probe_{number}.py", folder / f"probe_{number}.log"
    path.write_text(source, "utf-8", errors="replace")
    started = time.monotonic()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        run_child(path, target, writing, log)
    os.close(writing)
    # Both sides set the group, because either may come first.
    with contextlib.suppress(OSError):
        os.setpgid(child, child)
    try:
        answer, in_time = collect(reading, started + timeout_s, lifeline)
    finally:
        status = end(child)
    seconds = round(time.monotonic() - started, 3)
    printed = log.read_text("utf-8", errors="replace")[-4_000:] if log.exists() else ""
    if not in_time:
        outcome = {"ok": False, "stage": "timeout", "message": f"not compiled after {timeout_s:g} s"}
    elif not answer:
        death = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit code {os.WEXITSTATUS(status)}"
        outcome = {"ok": False, "stage": "crash", "message": f"the compiling process ended with {death}\n{printed}"}
    else:
        outcome = json.loads(answer)
        if not outcome["ok"] and printed:
            outcome["message"] += f"\n{printed}"
    return {**outcome, "seconds": seconds}


def end(child: int) -> int:
    """Kill whatever is left of a probe's process group; return the child's wait status."""
    # A child that has answered is leaving; killing it would only hide how it ended.
    done, status = os.waitpid(child, os.WNOHANG)
    with contextlib.suppress(OSError):
        os.killpg(child, signal.SIGKILL)
    return status if done else os.waitpid(child, 0)[1]


def collect(reading: int, deadline: float, lifeline: int | None) -> tuple[bytes, bool]:
    """Everything that comes through the pipe, and whether it ended in time.

    Ends the process when `lifeline`, the asker's end of standard input, closes: nobody waits any more.
    """
    chunks: list[bytes] = []
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        watched = [pipe.fileno()] if lifeline is None else [pipe.fileno(), lifeline]
        while True:
            ready, _, _ = select.select(watched, [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return b"", False
            if lifeline is not None and lifeline in ready and not os.read(lifeline, 4_096):
                raise SystemExit(3)
            if pipe.fileno() in ready:
                chunk = pipe.read(65_536)
                if not chunk:
                    return b"".join(chunks), True
                chunks.append(chunk)


def main() -> None:
    """Serve one request."""
    # The compiler's own prints must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    request = json.loads(sys.stdin.buffer.readline())
    lifeline = 0 if "--watch-stdin" in sys.argv else None
    # This folder's modules must not stand in for those that Triton imports.
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    for name in ("TRITON_INTERPRET", "TRITON_ALLOW_NON_CONSTEXPR_GLOBALS"):
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory(prefix="kernelgrove-probes-") as folder:
        os.environ["TRITON_CACHE_DIR"] = str(Path(folder) / "cache")
        try:
            import triton
            from triton.backends.compiler import GPUTarget

            found = re.fullmatch(r"sm_(\d+)", request["arch"])
            if found is None:
                raise ValueError(f"the architecture {request['arch']!r} is none of NVIDIA's, like sm_90")
            target = GPUTarget("cuda", int(found.group(1)), 32)
        except Exception as error:
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=answers)
            return
        header = {"triton": triton.__version__, "python": platform.python_version(), "arch": request["arch"]}
        print(json.dumps(header), file=answers)
        for number, source in enumerate(request["sources"]):
            outcome = judge(source, number, Path(folder), target, request["timeout_s"], lifeline)
            print(json.dumps(outcome), file=answers)


if __name__ == "__main__":
    main()
