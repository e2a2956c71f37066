"""Which Triton kernels a candidate launches, and with what, on either kind of machine.

Runs in the contestant. Without a GPU the launch recorder does the work inside Triton's interpreter;
with one, compiled kernels are noted as they are launched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from engine.judging.workers.values import dtype_of, flatten, unflatten

Json = dict[str, Any]


@dataclass(slots=True)
class Recorded:
    """What a recorded call did.

    Attributes:
        launches: without a GPU every launch in order, with one each kernel once, as plain JSON.
        fingerprint: on a GPU, a hash of the compiled code, grids and library calls; None where unknown.
        replays: on a GPU, how many captured graphs were replayed.
        streams: on a GPU, how many streams beside the call's own were held up.
    """

    launches: list[Json] = field(default_factory=list)
    fingerprint: str | None = None
    replays: int = 0
    streams: int = 0


def install(device: str, arch: str) -> None:
    """Prepares a nursery for recording on `device`; `arch` is what stands in for a GPU. Call once."""
    if device == "cpu":
        from engine.judging.workers import emulation, libdevice, recorder

        recorder.install(arch)
        libdevice.install()
        emulation.install()


@contextmanager
def recording(device: str, conduct: str = "run") -> Iterator[Recorded]:
    """Notes the launches inside the block; what it gives is complete when the block ends.

    `conduct` says what becomes of launches: `run`, `skip` them, or let them `fail`; without a GPU also
    `reverse` the order of their programs, with one `late`, which holds up streams beside the call's own.
    """
    recorded = Recorded()
    if device == "cpu":
        from engine.judging.workers import recorder

        with recorder.recording(conduct) as launches:
            yield recorded
        recorded.launches = [launch.to_json() for launch in launches]
    else:
        from engine.judging.workers import compiled_launches

        with compiled_launches.recording(conduct) as found:
            yield recorded
        recorded.launches = list(found.kernels.values())
        recorded.fingerprint = found.fingerprint()
        recorded.replays, recorded.streams = found.replays, found.streams


def sample(factory: type[torch.nn.Module], large: Json, mutated: Sequence[int] = (), corners: bool = False) -> Json:
    """Runs the candidate at the large form on tensors without memory.

    Args:
        factory: the candidate's module.
        large: the large form as `large_form.describe` gives it.
        mutated: the inputs that are outputs as well.
        corners: whether programs at the ends of each axis are looked at as well.

    Returns:
        `trace`, the launches with their traffic and the library calls in order; `notes` of what could
        not be followed; `outside`, the kernels that leave their tensors; `written`, for each output the
        share that those operations wrote, and `changed`, the same for each mutated input.
    """
    from engine.judging.workers import recorder

    constants = recorder.large_inputs(large["constants"])

    def build() -> torch.nn.Module:
        model = factory(*unflatten(large["init"], constants))
        return model.to(dtype_of(large["dtype"])) if large["dtype"] else model

    model = recorder.build_stand_in(build)
    tensors = recorder.large_inputs(large["inputs"])
    arguments = unflatten(large["input_form"], tensors)
    with recorder.sampling(corners=corners) as trace:
        result = model(*arguments)
    outputs: list[torch.Tensor] = []
    flatten(result, outputs)
    return {
        "trace": trace.to_json(),
        "notes": trace.notes,
        "outside": trace.outside,
        "written": [trace.written(tensor) for tensor in outputs],
        "changed": [trace.written(tensors[index]) for index in mutated],
    }
