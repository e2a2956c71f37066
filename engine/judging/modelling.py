"""Compiles a candidate ahead of time and models its time, on a machine without a GPU.

The engine's side: forks a compiling child, waits for it within the candidate's deadline, and turns
what it and the recorder say into resources and microseconds. Standard library only.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.judging.crew import Crew
from engine.judging.modelled_time import modelled_time_us
from engine.judging.output import Output
from engine.judging.wire import AsyncChannel, WireClosed, WireError
from engine.records import KernelResources, Verdict

MAX_REPLY_BYTES = 16 << 20
"""The largest answer taken from a compiling child, in which the candidate's module ran."""

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a candidate cannot be compiled."""

    verdict: Verdict
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Modelled:
    """What compiling and modelling one case of a candidate gave.

    Attributes:
        kernels: resources of each distinct kernel.
        fingerprint: a hash of the compiled code; None where there is none.
        time_us: modelled microseconds of one call; None with the `problem` that says why.
        parts: what the time is made of.
        tf32: whether a kernel multiplies float32 matrices with the precision of TF32.
        fault: set where the candidate cannot be compiled.
    """

    kernels: tuple[KernelResources, ...] = ()
    fingerprint: str | None = None
    time_us: float | None = None
    parts: tuple[Json, ...] = ()
    problem: str = ""
    tf32: bool = False
    fault: Fault | None = None


async def model(crew: Crew, path: Path, source: str, trace: Json, bound: Json | None, arch: str) -> Modelled:
    """Compiles what a candidate launches and models the time of one call. Raises CrewBroken.

    Args:
        crew: where the compiling child is forked.
        path: a file of the candidate; the child works in its folder.
        source: the candidate's module text.
        trace: the judge's message `trace`: launches at both forms and what went wrong at the large one.
        bound: the reference's lower bound.
        arch: the architecture, such as `sm_90`.
    """
    entries = trace["trace"] if isinstance(trace["trace"], list) else []
    launches = [entry for entry in entries if isinstance(entry, dict)] or trace["launches"]
    if any(entry.get("kind", "launch") == "launch" for entry in launches):
        reply = await _compile(crew, path, {"source": source, "launches": launches, "arch": arch})
    else:
        reply = {"kernels": [], "error": None, "fingerprint": None}
    if isinstance(reply, Fault):
        return Modelled(fault=reply)
    try:
        return _modelled(reply, entries, trace["problem"], bound, arch)
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        # Both trace and reply come from processes in which the candidate's code ran.
        return Modelled(problem=f"its time cannot be modelled: {error}")


def _modelled(reply: Json, entries: Sequence[Json], problem: str, bound: Json | None, arch: str) -> Modelled:
    error = reply["error"]
    if error is not None:
        fault = Fault(Verdict.COMPILE_ERROR, str(error["message"]), str(error["detail"]))
        return Modelled(fault=fault)
    kernels = {
        (kernel["kernel"], kernel["registers"], kernel["shared_bytes"]): KernelResources(
            str(kernel["kernel"]),
            str(kernel["arch"]),
            int(kernel["registers"]),
            int(kernel["spills"]),
            int(kernel["shared_bytes"]),
        )
        for kernel in reply["kernels"]
    }
    tf32 = any((kernel.get("dot") or {}).get("type") == "tf32" for kernel in reply["kernels"])
    known = Modelled(tuple(kernels.values()), reply["fingerprint"], tf32=tf32)
    if problem or not entries:
        why = problem or "it launches nothing at the large form"
        return Modelled(known.kernels, known.fingerprint, problem=f"its time cannot be modelled: {why}", tf32=tf32)
    found = modelled_time_us(entries, reply["kernels"], arch, bound)
    return Modelled(known.kernels, known.fingerprint, found.time_us, tuple(found.parts), tf32=tf32)


async def _compile(crew: Crew, path: Path, request: Json) -> Json | Fault:
    """The answer of a compiling child, or what became of it."""
    folder = path.parent / "compile"
    folder.mkdir(exist_ok=True)
    seat = crew.compiler()
    ours, theirs = socket.socketpair()
    channel = AsyncChannel(ours)
    output = Output(64 << 10, None)
    try:
        try:
            await crew.fork(seat, folder / path.name, theirs, output.writer)
        finally:
            theirs.close()
            output.started()
        try:
            await channel.send(request)
            return await channel.receive(MAX_REPLY_BYTES)
        except WireError:
            return Fault(Verdict.TAMPERED, "the candidate wrote on the compiler's private channel")
        except WireClosed:
            code = await asyncio.shield(seat.exited)
            return Fault(Verdict.COMPILE_ERROR, f"Triton's compiler {_ended(code)}", output.finish())
    finally:
        crew.spawn(crew.end(seat))
        output.finish()
        channel.close()


def _ended(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"crashed with {signal.Signals(-code).name}"
    return f"ended with exit code {code}, or the module did when it was imported"
