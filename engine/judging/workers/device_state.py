"""What the device went through while a block ran: sampled beside it, in the judge."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from engine.judging.nvml import NvmlDevice
from engine.judging.statistics import median

_PERIOD_S = 0.01


@dataclass(frozen=True, slots=True)
class DeviceState:
    """Medians over one block; `energy_j` and `throttled` are of the whole of it. None where the device does not say."""

    sm_mhz: float | None = None
    memory_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    throttled: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """What is known, as it is stored with the block."""
        return {name: value for name, value in asdict(self).items() if value not in (None, ())}


UNKNOWN = DeviceState()


@dataclass(slots=True)
class Observed:
    """What `watching` hands out; filled when its block has ended."""

    state: DeviceState = UNKNOWN


@contextmanager
def watching(device: NvmlDevice | None) -> Iterator[Observed]:
    """Samples the device while the block inside runs; without a device nothing is known afterwards."""
    observed = Observed()
    if device is None:
        yield observed
        return
    ended = threading.Event()
    samples: list[DeviceState] = []

    def sample() -> None:
        while True:
            samples.append(_now(device))
            if ended.wait(_PERIOD_S):
                return

    before = device.energy_j()
    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield observed
    finally:
        ended.set()
        thread.join()
        after = device.energy_j()
        spent = after - before if before is not None and after is not None else None
        observed.state = _summed_up(samples, spent)


def _now(device: NvmlDevice) -> DeviceState:
    return DeviceState(
        device.sm_clock_mhz(),
        device.memory_clock_mhz(),
        device.temperature_c(),
        device.power_w(),
        None,
        device.throttles(),
    )


def _summed_up(samples: Sequence[DeviceState], energy_j: float | None) -> DeviceState:
    def middle(name: str) -> float | None:
        values = [getattr(sample, name) for sample in samples]
        known = [float(value) for value in values if value is not None]
        return median(known) if known else None

    return DeviceState(
        middle("sm_mhz"),
        middle("memory_mhz"),
        middle("temperature_c"),
        middle("power_w"),
        energy_j,
        tuple(sorted({reason for sample in samples for reason in sample.throttled})),
    )
