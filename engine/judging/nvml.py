"""What the driver says of one GPU while it works: clocks, temperature, power, energy, and who else computes on it.

Read from NVIDIA's management library through ctypes, since workers may import the standard library
only. A machine without the library, and a question that a device does not answer, give None.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from typing import Any, Self

LIBRARY = "libnvidia-ml.so.1"

_SUCCESS, _TOO_SMALL = 0, 7
_CLOCK_SM, _CLOCK_MEMORY, _TEMPERATURE_GPU = 1, 2, 0

_THROTTLES = {
    0x2: "clocks set by a user",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal limit (software)",
    0x40: "thermal limit (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
}
"""Why clocks are lower than they could be, by bit (nvml.h, nvmlClocksEventReasons); idling is no reason."""


class ProcessInfo(ctypes.Structure):
    """A process with a context on the device (nvml.h, nvmlProcessInfo_t)."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("usedGpuMemory", ctypes.c_ulonglong),
        ("gpuInstanceId", ctypes.c_uint),
        ("computeInstanceId", ctypes.c_uint),
    )


class UtilizationSample(ctypes.Structure):
    """How busy a process kept the device for a moment (nvml.h, nvmlProcessUtilizationSample_t)."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("timeStamp", ctypes.c_ulonglong),
        ("smUtil", ctypes.c_uint),
        ("memUtil", ctypes.c_uint),
        ("encUtil", ctypes.c_uint),
        ("decUtil", ctypes.c_uint),
    )


class NvmlDevice:
    """One GPU as the management library sees it; safe to use from several threads."""

    def __init__(self, library: Any, handle: ctypes.c_void_p) -> None:
        self._library = library
        self._handle = handle

    @classmethod
    def open(cls, uuid: str, library: str = LIBRARY) -> Self | None:
        """The GPU with this id, such as `GPU-8f2c...` with or without its first word; None where it cannot be asked."""
        try:
            loaded = ctypes.CDLL(library)
            if loaded.nvmlInit_v2() != _SUCCESS:
                return None
            handle = ctypes.c_void_p()
            name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
            if loaded.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle)) != _SUCCESS:
                return None
        except (OSError, AttributeError):
            return None
        return cls(loaded, handle)

    def _number(self, name: str, kind: Any, *arguments: int) -> int | None:
        """The answer of a function whose last parameter is a pointer to a number."""
        number = kind()
        try:
            code = getattr(self._library, name)(self._handle, *arguments, ctypes.byref(number))
        except AttributeError:
            return None
        return int(number.value) if code == _SUCCESS else None

    def sm_clock_mhz(self) -> int | None:
        """The clock of the multiprocessors now."""
        return self._number("nvmlDeviceGetClockInfo", ctypes.c_uint, _CLOCK_SM)

    def memory_clock_mhz(self) -> int | None:
        """The clock of the device's memory now."""
        return self._number("nvmlDeviceGetClockInfo", ctypes.c_uint, _CLOCK_MEMORY)

    def temperature_c(self) -> int | None:
        """Degrees Celsius."""
        return self._number("nvmlDeviceGetTemperature", ctypes.c_uint, _TEMPERATURE_GPU)

    def power_w(self) -> float | None:
        """What the board draws now, in watts."""
        milliwatts = self._number("nvmlDeviceGetPowerUsage", ctypes.c_uint)
        return None if milliwatts is None else milliwatts / 1000.0

    def energy_j(self) -> float | None:
        """What the board has drawn since the driver was loaded, in joules."""
        millijoules = self._number("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong)
        return None if millijoules is None else millijoules / 1000.0

    def throttles(self) -> tuple[str, ...]:
        """Why the clocks are lower than they could be, now."""
        bits = self._number("nvmlDeviceGetCurrentClocksEventReasons", ctypes.c_ulonglong)
        if bits is None:
            bits = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong) or 0
        return tuple(words for bit, words in _THROTTLES.items() if bits & bit)

    def driver(self) -> str:
        """The driver's version, empty where it is not told."""
        text = ctypes.create_string_buffer(96)
        with contextlib.suppress(AttributeError):
            if self._library.nvmlSystemGetDriverVersion(text, ctypes.c_uint(len(text))) == _SUCCESS:
                return text.value.decode(errors="replace")
        return ""

    def pids(self) -> set[int] | None:
        """The processes that have a context on the device, as far as this process may see them."""
        for name in ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"):
            count = ctypes.c_uint(1024)
            processes = (ProcessInfo * count.value)()
            with contextlib.suppress(AttributeError):
                if getattr(self._library, name)(self._handle, ctypes.byref(count), processes) == _SUCCESS:
                    return {int(process.pid) for process in processes[: count.value]}
        return None

    def activity(self, since_s: float) -> dict[int, int]:
        """The largest percentage of the device that each process used in a moment after `since_s` (Unix time)."""
        count = ctypes.c_uint(0)
        since = ctypes.c_ulonglong(int(since_s * 1e6))
        with contextlib.suppress(AttributeError):
            ask = self._library.nvmlDeviceGetProcessUtilization
            if ask(self._handle, None, ctypes.byref(count), since) != _TOO_SMALL:
                return {}
            samples = (UtilizationSample * count.value)()
            if ask(self._handle, samples, ctypes.byref(count), since) != _SUCCESS:
                return {}
            shares: dict[int, int] = {}
            for sample in samples[: count.value]:
                if sample.timeStamp > since.value and sample.pid:
                    shares[int(sample.pid)] = max(int(sample.smUtil), shares.get(int(sample.pid), 0))
            return shares
        return {}


def now_s() -> float:
    """The clock that the library's samples carry: seconds of Unix time."""
    return time.time()
