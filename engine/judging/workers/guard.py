"""Notices what a candidate replaces in the process that it shares with the code that questions it.

Nothing rests on this alone: expected values, verdict and the clock that counts are out of the
candidate's reach anyway. It turns an attempt into a verdict with a name.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import threading
import time
from typing import Any

import torch
from torch.utils._device import DeviceContext

_OWN = "engine.judging."


class Guard:
    """What the process looked like before the candidate's code ran."""

    def __init__(self) -> None:
        # Looked up now: without a GPU parts of torch.cuda are stand-ins since torch was imported.
        self._named = [(owner, f"{where}.{name}", name, _look(owner, name)) for owner, where, name in _names()]
        self._own = [
            (vars(module), f"{module_name}.{name}", name, value, getattr(value, "__code__", None))
            for module_name, module in list(sys.modules.items())
            if module_name.startswith(_OWN)
            for name, value in list(vars(module).items())
            if callable(value)
        ]
        self._modes = _modes()
        self._threads = threading.active_count()

    def replaced(self) -> str:
        """The name of something that is no longer what it was; empty where all is in place."""
        for owner, path, name, before in self._named:
            if _look(owner, name) is not before:
                return path
        for space, path, name, value, code in self._own:
            if space.get(name) is not value or getattr(value, "__code__", None) is not code:
                return path
        if _modes() != self._modes:
            return "torch's function or dispatch mode"
        return ""

    def threads(self) -> int:
        """How many Python threads there are beyond those that were there at first."""
        return threading.active_count() - self._threads


def _names() -> list[tuple[Any, str, str]]:
    """What is watched beside our own modules: the owner, its name for people, and the attribute."""
    import triton
    from triton.compiler.compiler import CompiledKernel
    from triton.runtime.jit import JITFunction

    return [
        *(
            (time, "time", name)
            for name in ("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "sleep")
        ),
        *((statistics, "statistics", name) for name in ("mean", "median", "stdev", "quantiles")),
        *((gc, "gc", name) for name in ("collect", "get_objects", "get_referrers")),
        *((os, "os", name) for name in ("write", "read", "_exit")),
        *(
            (torch, "torch", name)
            for name in ("equal", "allclose", "isclose", "empty", "empty_like", "no_grad", "isnan")
        ),
        *((torch.testing, "torch.testing", name) for name in ("assert_close",)),
        *((torch.cuda, "torch.cuda", name) for name in ("synchronize", "Event", "Stream", "current_stream", "stream")),
        *((torch.cuda.Event, "torch.cuda.Event", name) for name in ("record", "elapsed_time", "synchronize", "query")),
        *(
            (torch.Tensor, "torch.Tensor", name)
            for name in ("copy_", "clone", "contiguous", "data_ptr", "__eq__", "shape")
        ),
        *(
            (torch.nn.Module, "torch.nn.Module", name)
            for name in ("__call__", "named_parameters", "named_buffers", "to")
        ),
        *((JITFunction, "triton.JITFunction", name) for name in ("run", "__getitem__")),
        (CompiledKernel, "triton.CompiledKernel", "run"),
        (torch.cuda.CUDAGraph, "torch.cuda.CUDAGraph", "replay"),
        (triton.testing, "triton.testing", "do_bench"),
        (triton.runtime.Autotuner, "triton.Autotuner", "run"),
    ]


def _look(owner: Any, name: str) -> Any:
    """The attribute as it is stored, so that a bound method is not a new object at each look."""
    for space in (owner, *getattr(owner, "__mro__", ())):
        if name in vars(space):
            return vars(space)[name]
    return getattr(owner, name, None)


def _modes() -> tuple[int, ...]:
    """The modes that see every call of torch, apart from a default device, which anyone may set."""
    functions = [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]
    dispatch = [torch._C._get_dispatch_stack_at(i) for i in range(torch._C._len_torch_dispatch_stack())]
    return tuple(id(mode) for mode in (*functions, *dispatch) if not isinstance(mode, DeviceContext))
