"""What the device went through while a block ran: sampled beside it, in the judge."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from engine.judging.nvml import NvmlDevice
from engine.judging.statistics import median

_PERIOD_S = 0.03
"""How often the clock is read: often enough for a median, and seldom enough not to disturb what is timed."""


@dataclass(frozen=True, slots=True)
class DeviceState:
    """The median clock of a block, the energy it took, and the rest at its end. None where the device does not say."""

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
    clocks: list[int | None] = []

    def sample() -> None:
        while not ended.wait(_PERIOD_S):
            clocks.append(device.sm_clock_mhz())

    before = device.energy_j()
    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield observed
    finally:
        ended.set()
        thread.join()
        observed.state = _state(device, clocks or [device.sm_clock_mhz()], before)


def _state(device: NvmlDevice, clocks: Sequence[int | None], energy_before_j: float | None) -> DeviceState:
    known = [float(clock) for clock in clocks if clock is not None]
    energy_j = device.energy_j()
    return DeviceState(
        median(known) if known else None,
        device.memory_clock_mhz(),
        device.temperature_c(),
        device.power_w(),
        energy_j - energy_before_j if energy_j is not None and energy_before_j is not None else None,
        device.throttles(),
    )
