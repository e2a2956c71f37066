"""Answers a candidate's questions about the GPU on a machine that has none.

Foreign kernels say `device="cuda"`, `x.is_cuda` or `torch.cuda.synchronize()`. A function mode maps
CUDA devices to the one that stands in for them (`cpu`, or `meta` while a candidate runs on stand-ins
at the large form), and the parts of `torch.cuda` and of Triton's driver that kernels use are patched.
Only the nursery and its contestants import this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _device

_STREAMING_MULTIPROCESSORS = 132
_SHARED_BYTES = 227 << 10
_real_device = torch.device


class CudaStandIn(TorchFunctionMode):
    """Sends what is meant for a GPU to `device`, and lets tensors say that they are on one."""

    def __init__(self) -> None:
        super().__init__()
        self.device = "cpu"

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Runs `func` with CUDA devices replaced."""
        # Property getters are new objects each time they are looked up, so identity says nothing.
        if getattr(func, "__name__", "") == "__get__":
            if func == _IS_CUDA:
                return True
            if func == _DEVICE:
                return _real_device("cuda", 0)
        if func is torch.Tensor.get_device:
            return 0
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.pin_memory:
            return args[0]
        return func(*map(self.replaced, args), **{key: self.replaced(value) for key, value in (kwargs or {}).items()})

    def replaced(self, value: Any) -> Any:
        """The device that stands in for `value` where that is a CUDA device; any other value as it is."""
        if isinstance(value, str):
            return self.device if value == "cuda" or value.startswith("cuda:") else value
        if isinstance(value, _real_device) and value.type == "cuda":
            return _real_device(self.device)
        return value


_tensor: Any = torch.Tensor
_IS_CUDA = _tensor.is_cuda.__get__
_DEVICE = _tensor.device.__get__

_mode = CudaStandIn()


@contextmanager
def standing_in(device: str) -> Iterator[None]:
    """Sends CUDA devices to `device` inside the block."""
    before = _mode.device
    _mode.device = device
    try:
        yield
    finally:
        _mode.device = before


def enter() -> None:
    """Turns the function mode on for the rest of this process's life."""
    _mode.__enter__()  # type: ignore[no-untyped-call]


@dataclass(slots=True)
class Stream:
    """A stream on which everything has always finished."""

    device: Any = None
    priority: int = 0
    cuda_stream: int = 0

    def synchronize(self) -> None:
        """Nothing is pending."""

    def wait_stream(self, stream: object) -> None:
        """Nothing is pending."""

    def wait_event(self, event: object) -> None:
        """Nothing is pending."""

    def record_event(self, event: Event | None = None) -> Event:
        """An event that has happened."""
        return event or Event()

    def query(self) -> bool:
        """Whether all work is done."""
        return True

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class Event:
    """An event that has always happened; no time passes between two of them."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self.enable_timing = enable_timing

    def record(self, stream: object = None) -> None:
        """Nothing to wait for."""

    def wait(self, stream: object = None) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def query(self) -> bool:
        """Whether the event happened."""
        return True

    def elapsed_time(self, other: Event) -> float:
        """Milliseconds until the other event."""
        return 0.0


@contextmanager
def _device_context(device: object = None) -> Iterator[None]:
    yield


@contextmanager
def _stream_context(stream: object = None) -> Iterator[None]:
    yield


def _properties(device: object = None) -> SimpleNamespace:
    return SimpleNamespace(
        name="NVIDIA H100 (stand-in)",
        major=9,
        minor=0,
        multi_processor_count=_STREAMING_MULTIPROCESSORS,
        total_memory=80 << 30,
        warp_size=32,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=_SHARED_BYTES,
        shared_memory_per_multiprocessor=228 << 10,
        L2_cache_size=50 << 20,
        is_integrated=0,
        gcnArchName="",
    )


class _DriverUtilities:
    """The device facts that kernels ask Triton's driver for."""

    def get_device_properties(self, device: int = 0) -> dict[str, int]:
        """As Triton's CUDA driver answers, for an H100."""
        return {
            "max_shared_mem": _SHARED_BYTES,
            "max_num_regs": 65536,
            "multiprocessor_count": _STREAMING_MULTIPROCESSORS,
            "warpSize": 32,
            "sm_clock_rate": 1_980_000,
            "mem_clock_rate": 2_619_000,
            "mem_bus_width": 5120,
        }


class _Driver:
    """Triton's active driver where there is none; the interpreter itself never asks for one."""

    utils = _DriverUtilities()

    def get_current_target(self) -> Any:
        """The target that stands in, as Triton describes it."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_active_torch_device(self) -> Any:
        """The device that kernels allocate on."""
        return _real_device("cuda", 0)

    def get_current_device(self) -> int:
        """The only device."""
        return 0

    def set_current_device(self, device: int) -> None:
        """There is only one."""

    def get_current_stream(self, device: int = 0) -> int:
        """The default stream."""
        return 0

    def get_device_interface(self) -> Any:
        """The module that answers for the device."""
        return torch.cuda

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """What benchmarks overwrite to clear the cache; nothing is timed here."""
        return torch.empty(1)

    def clear_cache(self, cache: torch.Tensor) -> None:
        """Nothing is timed here."""

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """A clock that finds everything equally fast."""
        return lambda call, quantiles=(0.5,), **_: [1.0 for _ in quantiles]


def install() -> None:
    """Patches torch.cuda, default devices and Triton's driver and autotuner. Call once, before forking."""
    cuda: Any = torch.cuda
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "synchronize": lambda device=None: None,
        "empty_cache": lambda: None,
        "get_device_name": lambda device=None: _properties().name,
        "get_device_capability": lambda device=None: (9, 0),
        "get_device_properties": _properties,
        "get_arch_list": lambda: ["sm_90"],
        "is_bf16_supported": lambda including_emulation=True: True,
        "current_stream": lambda device=None: Stream(),
        "default_stream": lambda device=None: Stream(),
        "set_stream": lambda stream: None,
        "stream": _stream_context,
        "device": _device_context,
        "device_of": _device_context,
        "Stream": Stream,
        "Event": Event,
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "memory_allocated": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 0,
        "memory_reserved": lambda device=None: 0,
        "max_memory_reserved": lambda device=None: 0,
        "reset_peak_memory_stats": lambda device=None: None,
        "mem_get_info": lambda device=None: (80 << 30, 80 << 30),
        "is_current_stream_capturing": lambda: False,
    }
    for name, answer in answers.items():
        setattr(cuda, name, answer)
    _patch_modules_and_defaults()
    _patch_triton()


def _patch_modules_and_defaults() -> None:
    module: Any = torch.nn.Module
    module.cuda = lambda self, device=None: self
    torch.Tensor.cuda = lambda self, *_, **__: self  # type: ignore[method-assign]
    # Its arguments are parsed before any mode is asked, and a stand-in is no stream.
    torch.Tensor.record_stream = lambda self, stream: None  # type: ignore[method-assign,assignment]
    plain_to = module.to

    def to(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        return plain_to(self, *map(_mode.replaced, args), **{key: _mode.replaced(v) for key, v in kwargs.items()})

    module.to = to
    # `with torch.device("cuda")` and `set_default_device` sit below every other mode, so they are mapped themselves.
    context: Any = _device.DeviceContext
    plain_init = context.__init__

    def init(self: Any, device: Any) -> None:
        plain_init(self, _mode.replaced(device))

    context.__init__ = init


def _patch_triton() -> None:
    import triton
    from triton.runtime.autotuner import Autotuner

    triton.runtime.driver.set_active(_Driver())
    plain_init = Autotuner.__init__

    def init(self: Any, fn: Any, arg_names: Any, configs: Any, *args: Any, **kwargs: Any) -> None:
        # There is nothing to time, and a first configuration is what its author would try first.
        plain_init(self, fn, arg_names, list(configs)[:1], *args, **kwargs)

    Autotuner.__init__ = init
