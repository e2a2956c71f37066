"""What the judge needs on a GPU beside the reference: memory to share, the device's lock, the clock, the bound."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from engine.judging.nvml import NvmlDevice
from engine.judging.settings import NUMERICS, JudgeSettings
from engine.judging.workers.answerer import Answerer, Fault, Gone
from engine.judging.workers.baselines import Baselines
from engine.judging.workers.clock import Clock
from engine.judging.workers.contents import Contents
from engine.judging.workers.device_lock import DeviceLock
from engine.judging.workers.exchange import CudaArenas
from engine.judging.workers.reference import Reference
from engine.judging.workers.values import dtype_of

_PROBE_BYTES = 1 << 30
_PROBE_WIDTH = 8192
_PROBES = 5

_SPLIT_PRODUCTS = 3
"""How many products of half types make one that is as exact as float32."""


class Gpu:
    """One GPU as the judge uses it."""

    def __init__(
        self,
        settings: JudgeSettings,
        device: torch.device,
        wanted: Callable[[str], Answerer],
        measuring: Callable[[str], None],
    ) -> None:
        """Sets up what is shared by all candidates.

        Args:
            settings: the run's settings.
            device: the GPU.
            wanted: gives a process for a baseline by its name.
            measuring: is told which baseline's process is busy.
        """
        contents = Contents(settings.seed)
        self.arenas = CudaArenas(device)
        self.id = unique_name(device)
        self.lock = DeviceLock(self.id)
        self.nvml = NvmlDevice.open(self.id)
        self.baselines = Baselines(settings, self.arenas.lend, contents, wanted, measuring)
        self.clock = Clock(settings, self.lock, self.baselines, contents, self.nvml)
        self._device = device
        self._peaks: dict[str, float] = {}

    def measure_baselines(
        self, case: int, reference: Reference, overrides: dict[str, Any], alone: Callable[[], None]
    ) -> str:
        """Measures every baseline of a case at the task's own precision, and the device's bandwidth.

        Returns:
            Why the reference cannot be timed, empty where it can.
        """
        with self.lock.exclusive(lambda what: None):
            alone()
            if "bandwidth" not in self._peaks:
                self._peaks["bandwidth"] = self._bandwidth()
            try:
                self.baselines.compare(case, reference, overrides, "exact")
            except Fault as fault:
                return fault.reason
            except Gone:
                return "its process ended or took too long"
            return ""

    def bounds(self, bound: Mapping[str, Any]) -> dict[str, tuple[float, str]]:
        """The speed of light in microseconds by precision tier, and what it comes from, `memory` or `compute`.

        Bytes over measured bandwidth, operations over the measured peak of the fastest products that a tier accepts.
        """
        moving = float(bound["bytes"]) / self._peaks["bandwidth"] * 1e6
        found = {}
        with self.lock.exclusive(lambda what: None):
            for tier in NUMERICS["bf16"]:
                peak = self._tier_peak(str(bound["dtype"]), tier) if bound["flops"] else float("inf")
                computing = float(bound["flops"]) / peak * 1e6
                found[tier] = (max(moving, computing), "memory" if moving >= computing else "compute")
        return found

    def _tier_peak(self, dtype: str, tier: str) -> float:
        """Operations a second that no right answer of a tier can be computed faster than.

        Float32 products of the lower tiers may be rounded to half types. Exact ones may be made of three products of
        half types (each operand split in two), which tensor cores do faster than float32 units do one. Where nothing is
        known of a type there is no limit.
        """
        if dtype == "float64":
            return self._peak(dtype)
        if dtype not in ("float32", "float16", "bfloat16"):
            return float("inf")
        half = self._peak("bfloat16" if dtype == "bfloat16" else "float16")
        if dtype != "float32" or tier != "exact":
            return half
        return max(self._peak("float32"), half / _SPLIT_PRODUCTS)

    def _bandwidth(self) -> float:
        """Bytes a second that a copy moves, reads and writes counted."""
        source = torch.empty(_PROBE_BYTES, dtype=torch.uint8, device=self._device)
        target = torch.empty_like(source)
        return 2 * _PROBE_BYTES / self._fastest(lambda: target.copy_(source))

    def _peak(self, dtype: str) -> float:
        """Operations a second of a large matrix product, float32 without TF32."""
        if dtype not in self._peaks:
            before = torch.get_float32_matmul_precision()
            torch.set_float32_matmul_precision("highest")
            try:
                left = torch.randn(_PROBE_WIDTH, _PROBE_WIDTH, device=self._device).to(dtype_of(dtype))
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


def unique_name(device: torch.device) -> str:
    """The GPU's own id, the same in every process and container."""
    properties = torch.cuda.get_device_properties(device)
    return str(getattr(properties, "uuid", f"{properties.name}-{device.index or 0}"))
