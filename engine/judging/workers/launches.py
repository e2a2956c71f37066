"""Which Triton kernels a candidate launches, and with what, on either kind of machine.

Runs in the contestant. Without a GPU the launch recorder does the work inside Triton's interpreter;
with one, compiled kernels are noted as they are launched, and nothing stays wrapped while calls are timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

Recorded = Callable[[], list[dict[str, Any]]]


def install(device: str) -> None:
    """Prepares recording for `device`; call once in the nursery, before forking."""


@contextmanager
def recording(device: str) -> Iterator[Recorded]:
    """Notes the launches inside the block; the function it gives returns them as plain JSON."""
    with _interpreted() if device == "cpu" else _compiled() as launches:
        yield lambda: launches


@contextmanager
def _interpreted() -> Iterator[list[dict[str, Any]]]:
    from triton.runtime.interpreter import InterpretedFunction

    launches: list[dict[str, Any]] = []
    function: Any = InterpretedFunction
    plain_run = function.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        launches.append({"kernel": self.__name__})
        return plain_run(self, *args, **kwargs)

    function.run = run
    try:
        yield launches
    finally:
        function.run = plain_run


@contextmanager
def _compiled() -> Iterator[list[dict[str, Any]]]:
    from triton.runtime.jit import JITFunction

    seen: dict[str, dict[str, Any]] = {}
    launches: list[dict[str, Any]] = []
    function: Any = JITFunction
    plain_run = function.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        kernel = plain_run(self, *args, **kwargs)
        if kernel is not None and not kwargs.get("warmup"):
            described = _describe(kernel)
            if described["hash"] not in seen:
                seen[described["hash"]] = described
                launches.append(described)
        return kernel

    function.run = run
    try:
        yield launches
    finally:
        function.run = plain_run


def _describe(kernel: Any) -> dict[str, Any]:
    """The resources of a compiled and loaded kernel."""
    metadata = kernel.metadata
    target = getattr(metadata, "target", None)
    return {
        "kernel": str(getattr(kernel, "name", getattr(metadata, "name", "kernel"))),
        "hash": str(getattr(kernel, "hash", id(kernel))),
        "arch": f"sm_{target.arch}" if target is not None else "",
        "registers": int(getattr(kernel, "n_regs", None) or 0),
        "spills": int(getattr(kernel, "n_spills", None) or 0),
        "shared_bytes": int(getattr(metadata, "shared", 0) or 0),
        "num_warps": int(getattr(metadata, "num_warps", 0) or 0),
        "num_stages": int(getattr(metadata, "num_stages", 0) or 0),
        "tf32": "tf32" in _text(kernel, "ttgir") or "tf32" in _text(kernel, "ptx"),
    }


def _text(kernel: Any, stage: str) -> str:
    try:
        text = kernel.asm[stage]
    except (KeyError, AttributeError):
        return ""
    return text if isinstance(text, str) else ""


def sample(factory: type[torch.nn.Module], message: dict[str, Any]) -> list[dict[str, Any]]:
    """Runs the candidate at the large form on stand-ins and returns its trace in order."""
    raise NotImplementedError("no recorder")
