"""Which Triton kernels a candidate launches, and with what, on either kind of machine.

Runs in the contestant. Without a GPU the launch recorder does the work inside Triton's interpreter;
with one, compiled kernels are noted as they are launched, and nothing stays wrapped while calls are timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from engine.judging.workers.conditions import LaunchRefused
from engine.judging.workers.values import dtype_of, flatten, unflatten

Json = dict[str, Any]
Recorded = Callable[[], list[Json]]


def install(device: str, arch: str) -> None:
    """Prepares a nursery for recording on `device`; `arch` is what stands in for a GPU. Call once."""
    if device == "cpu":
        from engine.judging.workers import emulation, libdevice, recorder

        recorder.install(arch)
        libdevice.install()
        emulation.install()


@contextmanager
def recording(device: str, conduct: str = "run") -> Iterator[Recorded]:
    """Notes the launches inside the block; the function it gives returns them as plain JSON.

    `conduct` says what becomes of them: `run`, `reverse` the order of their programs (where there is no
    GPU, which has an order of its own), `skip` them, or let them `fail`.
    """
    if device == "cpu":
        from engine.judging.workers import recorder

        with recorder.recording(conduct) as launches:
            yield lambda: [launch.to_json() for launch in launches]
    else:
        with _compiled(conduct) as kernels:
            yield lambda: kernels


@contextmanager
def _compiled(conduct: str) -> Iterator[list[Json]]:
    from triton.runtime.jit import JITFunction

    seen: set[str] = set()
    kernels: list[Json] = []
    function: Any = JITFunction
    plain_run = function.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if conduct == "fail":
            raise LaunchRefused
        if conduct == "skip":
            return None
        kernel = plain_run(self, *args, **kwargs)
        if kernel is not None and not kwargs.get("warmup"):
            described = _describe(kernel)
            if described["hash"] not in seen:
                seen.add(described["hash"])
                kernels.append(described)
        return kernel

    function.run = run
    try:
        yield kernels
    finally:
        function.run = plain_run


def _describe(kernel: Any) -> Json:
    """The resources of a compiled and loaded kernel, named as the compile nursery names them."""
    metadata = kernel.metadata
    target = getattr(metadata, "target", None)
    return {
        "kernel": str(getattr(metadata, "name", "kernel")),
        "hash": str(getattr(kernel, "hash", id(kernel))),
        "arch": f"sm_{target.arch}" if target is not None else "",
        "registers": int(getattr(kernel, "n_regs", None) or 0),
        "spills": int(getattr(kernel, "n_spills", None) or 0),
        "shared_bytes": int(getattr(metadata, "shared", 0) or 0),
        "num_warps": int(getattr(metadata, "num_warps", 0) or 0),
        "num_stages": int(getattr(metadata, "num_stages", 0) or 0),
    }


def sample(factory: type[torch.nn.Module], large: Json, mutated: Sequence[int] = ()) -> Json:
    """Runs the candidate at the large form on tensors without memory.

    Args:
        factory: the candidate's module.
        large: the large form as `large_form.describe` gives it.
        mutated: the inputs that are outputs as well.

    Returns:
        `trace`, the launches with their traffic and the library calls in order; `notes` of what could
        not be followed; `written`, for each output the share that those operations wrote, and `changed`,
        the same for each mutated input.
    """
    from engine.judging.workers import recorder

    constants = recorder.large_inputs(large["constants"])

    def build() -> torch.nn.Module:
        model = factory(*unflatten(large["init"], constants))
        return model.to(dtype_of(large["dtype"])) if large["dtype"] else model

    model = recorder.build_stand_in(build)
    tensors = recorder.large_inputs(large["inputs"])
    arguments = unflatten(large["input_form"], tensors)
    with recorder.sampling() as trace:
        result = model(*arguments)
    outputs: list[torch.Tensor] = []
    flatten(result, outputs)
    return {
        "trace": trace.to_json(),
        "notes": trace.notes,
        "written": [trace.written(tensor) for tensor in outputs],
        "changed": [trace.written(tensors[index]) for index in mutated],
    }
