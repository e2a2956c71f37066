"""Answers questions about a GPU on a machine that has none, so that a candidate's host code runs there.

Owns the replaced functions of `torch.cuda` and a stand-in for Triton's driver. Tensors are not touched
here: `stand_ins` redirects their devices.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import triton

from engine.judging.devices import Device, device_for


class _Stream:
    """A stream on which nothing runs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.cuda_stream = 0
        self.stream_id = 0
        self.device = torch.device("cuda", 0)

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: True


class _Event(_Stream):
    """An event that has always happened; no time passes between two of them."""

    def elapsed_time(self, end: Any) -> float:
        """Milliseconds between two events."""
        return 0.0


def _properties(device: Device) -> SimpleNamespace:
    return SimpleNamespace(
        name=device.name,
        major=device.capability // 10,
        minor=device.capability % 10,
        multi_processor_count=device.multiprocessors,
        total_memory=device.memory_bytes,
        L2_cache_size=device.l2_bytes,
        warp_size=32,
        max_threads_per_multi_processor=device.threads,
        max_threads_per_block=1024,
        regs_per_multiprocessor=device.registers,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=device.shared_per_program,
        shared_memory_per_multiprocessor=device.shared_bytes,
        is_integrated=0,
        is_multi_gpu_board=0,
    )


class _Driver:
    """What Triton asks of its driver while a module is imported or its host code runs."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.utils = SimpleNamespace(
            get_device_properties=lambda index=0: {
                "max_shared_mem": device.shared_per_program,
                "max_num_regs": device.registers,
                "multiprocessor_count": device.multiprocessors,
                "warpSize": 32,
                "sm_clock_rate": int(device.clock_ghz * 1e6),
                "mem_clock_rate": 3_201_000,
                "mem_bus_width": 6144,
            }
        )

    def get_current_target(self) -> Any:
        """The architecture that is compiled for."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self._device.capability, 32)

    def get_current_device(self) -> int:
        """The only device."""
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        """The default stream."""
        return 0

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        """Major and minor compute capability."""
        return self._device.capability // 10, self._device.capability % 10

    def set_current_device(self, device: int) -> None:
        """There is only one device."""

    def get_active_torch_device(self) -> torch.device:
        """The device that tensors of this driver live on."""
        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        """The module that PyTorch has for the device."""
        return torch.cuda

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """A buffer to flush the cache with; nothing is cached here."""
        return torch.empty(1, dtype=torch.int)

    def clear_cache(self, cache: torch.Tensor) -> None:
        """Nothing to clear."""

    def get_benchmarker(self) -> Any:
        """A benchmark that runs once and says that it took a millisecond, whatever it was given."""

        def benchmark(kernel_call: Any, *, quantiles: Any = None, **kwargs: Any) -> Any:
            kernel_call()
            return [1.0] * len(quantiles) if quantiles else 1.0

        return benchmark


def _own_function(answer: Callable[..., Any]) -> Callable[..., Any]:
    # torch._dynamo, where it is imported later, insists that no two names of torch share one function.
    def answered(*args: Any, **kwargs: Any) -> Any:
        return answer(*args, **kwargs)

    return answered


def pretend_device(arch: str) -> None:
    """Makes `torch.cuda` and Triton's driver describe a device of `arch`; lasts until the process ends."""
    device = device_for(arch)
    nothing = lambda *args, **kwargs: None  # noqa: E731
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": nothing,
        "_lazy_init": nothing,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": nothing,
        "synchronize": nothing,
        "empty_cache": nothing,
        "ipc_collect": nothing,
        "reset_peak_memory_stats": nothing,
        "is_bf16_supported": lambda *args, **kwargs: True,
        "is_current_stream_capturing": lambda: False,
        "manual_seed": nothing,
        "manual_seed_all": nothing,
        "get_device_name": lambda index=None: device.name,
        "get_device_capability": lambda index=None: (device.capability // 10, device.capability % 10),
        "get_device_properties": lambda index=None: _properties(device),
        "memory_allocated": lambda *args, **kwargs: 0,
        "max_memory_allocated": lambda *args, **kwargs: 0,
        "mem_get_info": lambda *args, **kwargs: (device.memory_bytes, device.memory_bytes),
        "current_stream": lambda *args, **kwargs: _Stream(),
        "default_stream": lambda *args, **kwargs: _Stream(),
        "stream": lambda *args, **kwargs: contextlib.nullcontext(),
        "device": lambda *args, **kwargs: contextlib.nullcontext(),
        "device_of": lambda *args, **kwargs: contextlib.nullcontext(),
        "Stream": _Stream,
        "Event": _Event,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer if isinstance(answer, type) else _own_function(answer))
    triton.runtime.driver.set_active(_Driver(device))
