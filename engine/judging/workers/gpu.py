"""What the judge needs on a GPU beside the reference: memory to share, the device's lock, the clock, the bound."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from engine.judging.settings import JudgeSettings
from engine.judging.workers.clock import BASELINES, Clock
from engine.judging.workers.device_lock import DeviceLock
from engine.judging.workers.exchange import CudaArenas
from engine.judging.workers.reference import Reference

_PROBE_BYTES = 1 << 30
_PROBE_WIDTH = 8192
_PROBES = 5


class Gpu:
    """One GPU as the judge uses it."""

    def __init__(self, settings: JudgeSettings, device: torch.device, measuring: Callable[[str], None]) -> None:
        self.arenas = CudaArenas(device)
        self.lock = DeviceLock(_unique_name(device))
        self.clock = Clock(settings, self.lock, self.arenas.lend, measuring)
        self._device = device
        self._peaks: dict[str, float] = {}

    def measure_baselines(self, case: int, reference: Reference, overrides: dict[str, Any]) -> None:
        """Measures every baseline of a case at the task's own precision, and the device's bandwidth."""
        with self.lock.exclusive(lambda waits: None):
            if "bandwidth" not in self._peaks:
                self._peaks["bandwidth"] = self._bandwidth()
            self.clock.measure_baselines(case, reference, overrides, "exact")

    def times(self, case: int) -> dict[str, dict[str, float]]:
        """Microseconds of the baselines of a case, by tier and name."""
        found: dict[str, dict[str, float]] = {}
        for name in BASELINES:
            baseline = self.clock.baselines.get(name)
            for (index, tier), value in (baseline.times if baseline is not None else {}).items():
                if index == case:
                    found.setdefault(tier, {})[name] = value
        return found

    def problems(self) -> list[str]:
        """Why baselines are missing, one line each."""
        return [baseline.problem for baseline in self.clock.baselines.values() if baseline.problem]

    def bound_us(self, bound: Mapping[str, Any]) -> float:
        """The speed of light in microseconds: bytes over measured bandwidth, operations over measured peak.

        Float32 products are allowed TF32, the fastest that the default numerics accept.
        """
        moving = float(bound["bytes"]) / self._peaks["bandwidth"]
        computing = float(bound["flops"]) / self._peak(str(bound["dtype"])) if bound["flops"] else 0.0
        return max(moving, computing) * 1e6

    def _bandwidth(self) -> float:
        """Bytes a second that a copy moves, reads and writes counted."""
        source = torch.empty(_PROBE_BYTES, dtype=torch.uint8, device=self._device)
        target = torch.empty_like(source)
        return 2 * _PROBE_BYTES / self._fastest(lambda: target.copy_(source))

    def _peak(self, dtype: str) -> float:
        """Operations a second of a large matrix product."""
        kind = {"float16": torch.float16, "bfloat16": torch.bfloat16}.get(dtype, torch.float32)
        if dtype not in self._peaks:
            before = torch.get_float32_matmul_precision()
            torch.set_float32_matmul_precision("high")
            try:
                left = torch.randn(_PROBE_WIDTH, _PROBE_WIDTH, dtype=kind, device=self._device)
                self._peaks[dtype] = 2.0 * _PROBE_WIDTH**3 / self._fastest(lambda: left @ left)
            finally:
                torch.set_float32_matmul_precision(before)
        return self._peaks[dtype]

    def _fastest(self, work: Callable[[], object]) -> float:
        """Seconds of the fastest of a few runs."""
        best = float("inf")
        for _ in range(_PROBES):
            torch.cuda.synchronize(self._device)
            start = time.perf_counter()
            work()
            torch.cuda.synchronize(self._device)
            best = min(best, time.perf_counter() - start)
        return best


def _unique_name(device: torch.device) -> str:
    """The GPU's own id, the same in every process and container."""
    properties = torch.cuda.get_device_properties(device)
    return str(getattr(properties, "uuid", f"{properties.name}-{device.index or 0}"))
