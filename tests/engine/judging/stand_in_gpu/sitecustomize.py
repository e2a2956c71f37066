"""Makes the judge's processes take the CPU for a GPU that times what it runs, for tests of the timing protocol.

Loaded by Python itself in every process whose PYTHONPATH names this folder. Work is real, plain PyTorch on
the CPU; device events read the process's clock. What only hardware has (caches, graphs, Triton) is not here.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import os
import sys
import time
from types import SimpleNamespace
from typing import Any

SWITCH = "TRITON_STAND_IN_GPU"
"""The variable that holds the device's id; workers get what begins with this word."""

DEVICE = "cpu:0"
"""A device of PyTorch's that is not called `cpu`."""


class Event:
    def __init__(self, enable_timing: bool = False) -> None:
        self.at = 0.0

    def record(self, stream: Any = None) -> None:
        self.at = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        return (end.at - self.at) * 1e3

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True


def patch_torch() -> None:
    import torch

    stream = SimpleNamespace(cuda_stream=0)
    properties = SimpleNamespace(name="stand-in GPU", uuid=os.environ[SWITCH], L2_cache_size=4096, total_memory=4 << 30)
    answers: dict[str, Any] = {
        "Event": Event,
        "is_available": lambda: True,
        "set_device": lambda device: None,
        "set_per_process_memory_fraction": lambda fraction, device=None: None,
        "synchronize": lambda device=None: None,
        "get_device_properties": lambda device=None: properties,
        "get_device_capability": lambda device=None: (9, 0),
        "get_device_name": lambda device=None: properties.name,
        "reset_peak_memory_stats": lambda device=None: None,
        "max_memory_allocated": lambda device=None: 3 << 20,
        "current_stream": lambda device=None: stream,
        "stream": lambda stream: contextlib.nullcontext(),
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)


def patch(name: str, module: Any) -> None:
    """Changes one of the judge's modules, before anybody takes names from it."""
    match name:
        case "judge":
            module._device = lambda wanted: DEVICE
        case "timing":
            module.FLUSH_BYTES = 1 << 16
        case "contestant":
            module._optimised = lambda model, how: model
            module.spoil_free_memory = lambda: None
        case "clock":
            # A loaded machine takes its processes off the CPU, which their own events do not see.
            module.CONTRADICTION = 1000.0
        case "gpu":
            module._PROBE_BYTES, module._PROBE_WIDTH = 1 << 20, 64
        case "exchange":
            module.CudaArenas = lambda device: SimpleNamespace(
                lend=lambda tensors, margin=0: module.MemfdArena(tensors)
            )


class Finder(importlib.abc.MetaPathFinder):
    prefix = "engine.judging.workers."
    names = ("judge", "timing", "contestant", "clock", "gpu", "exchange")

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        name = fullname.removeprefix(self.prefix)
        if fullname == name or name not in self.names:
            return None
        spec: Any = importlib.machinery.PathFinder.find_spec(fullname, path)
        load = spec.loader.exec_module

        def load_and_patch(module: Any) -> None:
            patch_torch()
            load(module)
            patch(name, module)

        spec.loader.exec_module = load_and_patch
        return spec


if SWITCH in os.environ:
    sys.meta_path.insert(0, Finder())
