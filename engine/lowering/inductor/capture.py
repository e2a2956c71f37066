"""The one place that depends on TorchInductor's insides: text of a lowered graph without a GPU.

A process that calls `pretend_device` can trace and lower for a CUDA device that does not exist: tensors are fake, a
stand-in Triton driver names the target, and the wrapper's text is taken before anything is compiled or run. That
process must never run real CUDA work. Tried with torch 2.11 and 2.13; `tests/engine/lowering/test_capture.py` says
for each installed version whether these seams still hold.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import functools
import logging
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch._inductor.compile_fx
import torch._inductor.config
import torch._inductor.graph
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._inductor.choices import InductorChoices
from torch._inductor.codegen.triton import TritonKernel
from torch._inductor.fx_passes import joint_graph
from torch._inductor.virtualized import V
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

DEVICE = torch.device("cuda", 0)
"""The device that all fake tensors are on."""

_PERSISTENT_LIMIT = 16384
"""Longest reduction, in elements, that one program may hold at once; Triton tensors may have 2**20 elements."""

_FEW_RESULTS = 2048
"""Reductions with more results than this fill the device without being split."""

_CUDA, _META = 1, 14
"""Numbers of two kinds of device in c10/core/DeviceType.h."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How Inductor is asked to lower: its own configuration and the choices that are made in its place.

    `persistent` None leaves the choice to Inductor; True holds each reduction whole in one program where that is
    possible. `split` above 1 cuts each reduction into that many parts. `two_step_variance` computes mean, then
    squared deviations, in place of Welford's recurrence.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    persistent: bool | None = None
    split: int | None = None
    two_step_variance: bool = False


@dataclass(frozen=True, slots=True)
class Lowered:
    """The text of Inductor's wrapper with its kernels, and the names of the size symbols in it."""

    text: str
    symbols: Mapping[str, str]


class LoweringFailed(Exception):
    """Inductor could not lower the graph; the text is one line."""


class _Captured(BaseException):
    """Carries the wrapper's text out of the compiler before the text is compiled."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


def pretend_device(arch: str) -> None:
    """Makes this process believe in one NVIDIA GPU of the architecture `arch` ("sm_90"). Cannot be undone."""
    number = int(arch.removeprefix("sm_").rstrip("af"))
    _quiet()
    _allow_fake_device()
    driver.set_active(_driver(number))
    properties = _properties(number)
    answers: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_properties": lambda device=None: properties,
        "get_device_capability": lambda device=None: (properties.major, properties.minor),
        "get_device_name": lambda device=None: properties.name,
        "get_rng_state": lambda device=None: torch.zeros(16, dtype=torch.uint8, device="cpu"),
        "set_rng_state": lambda state, device=None: None,
        "synchronize": lambda device=None: None,
        "_exchange_device": lambda device: 0,
        "_maybe_exchange_device": lambda device: 0,
        "is_bf16_supported": lambda including_emulation=True: True,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    interface = torch._dynamo.device_interface.CudaInterface
    for name in ("current_device", "device_count", "get_device_properties", "exchange_device", "maybe_exchange_device"):
        target = {"exchange_device": "_exchange_device", "maybe_exchange_device": "_maybe_exchange_device"}
        setattr(interface, name, staticmethod(answers[target.get(name, name)]))
    # The pattern tables of attention and padding are traced with real tensors on the device.
    joint_graph.lazy_init = lambda *arguments, **named: None
    _drop_patterns({"mul_softmax_pattern", "div_softmax_pattern"})
    lowering: Any = torch._inductor.graph.GraphLowering
    lowering.compile_to_module = _hand_over
    # A mask that is left out because a block divides today's size would make the kernel wrong for other sizes.
    kernel: Any = TritonKernel
    kernel._has_constant_mask = _mask_is_constant


def _allow_fake_device() -> None:
    """Lets Python's own methods of tensors (`x[0]`, `~x`, `copy_`) pass their device guard on fake CUDA tensors.

    A build with CUDA offers this for machines without a GPU. A build without it has no guard for CUDA at all and
    refuses even fake tensors; it gets the guard of meta tensors, which does nothing.
    """
    # A build with CUDA would touch the device at the first fake tensor on it.
    fake: Any = fake_tensor
    fake.init_gpu_context = lambda device: None
    torch._C._ensureCUDADeviceGuardSet()
    if torch.version.cuda is not None:
        return
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    guards = (ctypes.c_void_p * (_META + 1)).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    guards[_CUDA] = guards[_CUDA] or guards[_META]


def _drop_patterns(handlers: set[str]) -> None:
    """Forgets rewrites that keep rare infinities as they were at the price of a second reduction."""
    for patterns in joint_graph.pass_patterns:
        for entries in patterns.patterns.values():
            entries[:] = [
                entry for entry in entries if getattr(getattr(entry, "handler", None), "__name__", "") not in handlers
            ]


def _quiet() -> None:
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    warnings.filterwarnings("ignore")
    for name in ("torch", "torch._inductor", "torch._dynamo", "torch.fx.experimental.symbolic_shapes"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _driver(number: int) -> Any:
    target = GPUTarget("cuda", number, 32)
    return SimpleNamespace(
        get_current_target=lambda: target,
        get_active_torch_device=lambda: DEVICE,
        get_current_device=lambda: 0,
        get_current_stream=lambda device=0: 0,
        is_active=lambda: True,
        get_device_interface=lambda: torch.cuda,
    )


def _properties(number: int) -> Any:
    processors = {70: 80, 75: 40, 80: 108, 86: 84, 89: 128, 90: 132, 100: 148, 103: 148, 120: 170}
    return SimpleNamespace(
        name=f"stand-in for sm_{number}",
        major=number // 10,
        minor=number % 10,
        multi_processor_count=processors.get(number, 132),
        regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=2048 if number in (80, 90, 100, 103) else 1536,
        max_threads_per_block=1024,
        warp_size=32,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=232448 if number >= 90 else 101376,
        total_memory=80 << 30,
        L2_cache_size=50 << 20,
        is_integrated=False,
        gcnArchName="",
    )


def _hand_over(graph: Any) -> Any:
    code = graph.codegen()[0]
    raise _Captured(code if isinstance(code, str) else code.value)


def _mask_is_constant(kernel: Any, tree: Any) -> bool:
    return bool(tree.numel == 1) and not (tree.is_reduction and kernel.persistent_reduction)


class SymbolicSizes:
    """A fake tensor mode whose sizes may be symbols, each named and with the value it has in the large form."""

    def __init__(self) -> None:
        self.environment = ShapeEnv(duck_shape=False)
        self.mode = FakeTensorMode(shape_env=self.environment, allow_non_fake_inputs=True)
        self.names: dict[str, str] = {}

    def size(self, name: str, value: int, lowest: int) -> Any:
        """A new symbolic integer, at least `lowest` (two or more), with `value` as its hint."""
        symbol: Any = self.environment.create_symbol(value, ConstantSource(name), dynamic_dim=DimDynamic.DYNAMIC)
        self.environment.var_to_range[symbol] = ValueRanges(lowest, int_oo)
        self.names[str(symbol)] = name
        return self.environment.create_symintnode(symbol, hint=value)

    def fixed(self) -> dict[str, str]:
        """Sizes that tracing had to replace, by name, with what they became."""
        return {
            self.names[str(old)]: str(new)
            for old, new in self.environment.replacements.items()
            if str(old) in self.names
        }

    def broken_guards(self, values: Mapping[str, int]) -> list[str]:
        """The assumptions made while lowering that do not hold when the sizes have other values.

        Rounding in a meta function asks for a remainder whose answer does not change its result; that is left out.
        """
        substitution = {symbol: values[name] for symbol, name in self.names.items() if name in values}
        broken = []
        for guard in self.environment.guards:
            if "div_rtn" in str(guard.sloc):
                continue
            expression = guard.expr.subs({s: substitution.get(str(s), s) for s in guard.expr.free_symbols})
            if expression == False:  # noqa: E712 - a sympy Boolean is not a bool
                broken.append(str(guard.expr))
        return broken


class _Choices(InductorChoices):
    """Inductor's own heuristics, except where `Settings` decides."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.partial: set[int] = set()

    def should_use_persistent_reduction(self, features: Any, cooperative_reduction: bool) -> bool:  # type: ignore[override]
        if self.settings.persistent is None:
            return bool(InductorChoices.should_use_persistent_reduction(features, cooperative_reduction))
        if features.contains_op("dot"):
            return False
        return self.settings.persistent and _hint(features.reduction_numel) <= _PERSISTENT_LIMIT

    def reduction_split_factor(  # type: ignore[override]
        self, device: torch.device, reduction_numel_hint: int, numel_hint: int, inner_reduction: bool
    ) -> int:
        """Splits reductions that are long and have few results; parts of a split reduction are not split again."""
        if self.settings.split is None:
            factor = InductorChoices.reduction_split_factor(device, reduction_numel_hint, numel_hint, inner_reduction)
            return int(factor)
        if numel_hint in self.partial or numel_hint > _FEW_RESULTS or reduction_numel_hint < 64 * self.settings.split:
            return 1
        self.partial.add(numel_hint * self.settings.split)
        return self.settings.split


def _hint(expression: Any) -> int:
    sizes: Any = V.graph.sizevars
    ask = getattr(sizes, "optimization_hint", None) or sizes.size_hint
    return int(ask(expression, fallback=_PERSISTENT_LIMIT + 1))


def _persistent_block(length: Any) -> int:
    """Stands for the block that holds a whole reduction; the rewritten text computes it from the shape."""
    hint = _hint(length)
    if hint > _PERSISTENT_LIMIT:
        raise ValueError(f"Failed to find static RBLOCK for {length}")
    return 1 << max(0, math.ceil(math.log2(max(hint, 1))))


@contextlib.contextmanager
def _settled(settings: Settings) -> Iterator[None]:
    config: dict[str, Any] = {
        "force_disable_caches": True,
        "compile_threads": 1,
        "size_asserts": False,
        "alignment_asserts": False,
        "nan_asserts": False,
        "comment_origin": False,
        "joint_graph_constant_folding": False,
        "triton.descriptive_names": "original_aten",
        "triton.autotune_at_compile_time": False,
        **settings.config,
    }
    known = {name: value for name, value in config.items() if _exists(name)}
    lowering: Any = torch._inductor.lowering
    kernel: Any = TritonKernel
    kept_variance, kept_block = lowering.use_two_step_variance, vars(TritonKernel)["_get_persistent_RBLOCK"]
    if settings.two_step_variance:
        lowering.use_two_step_variance = lambda *arguments, **named: True
    if settings.persistent:
        kernel._get_persistent_RBLOCK = staticmethod(_persistent_block)
    try:
        with torch._inductor.config.patch(known), V.set_choices_handler(_Choices(settings)):
            yield
    finally:
        lowering.use_two_step_variance = kept_variance
        kernel._get_persistent_RBLOCK = kept_block


@functools.cache
def _exists(name: str) -> bool:
    place: Any = torch._inductor.config
    for part in name.split("."):
        if not hasattr(place, part):
            return False
        place = getattr(place, part)
    return True


def trace(function: Callable[..., Sequence[Any]], arguments: Sequence[Any], sizes: SymbolicSizes) -> Any:
    """Records `function`, which returns a flat sequence, as a graph of ATen operations.

    Args:
        function: called once with `arguments`.
        arguments: fake tensors and symbolic sizes that belong to `sizes`.
        sizes: the mode under which the arguments were made.

    Returns:
        A graph module, to be handed to `lower` any number of times.
    """
    # Composite operations such as matmul keep sizes symbolic only where Python decomposes them.
    with sizes.mode, torch.no_grad(), enable_python_dispatcher():
        return make_fx(function, _allow_non_fake_inputs=True)(*arguments)


def lower(graph: Any, arguments: Sequence[Any], sizes: SymbolicSizes, settings: Settings) -> Lowered:
    """Lowers a traced graph and returns the wrapper's text.

    Raises:
        LoweringFailed: Inductor refuses, with the first line of its reason.
    """
    try:
        with sizes.mode, torch.no_grad(), _settled(settings):
            compiled: Any = torch._inductor.compile_fx.compile_fx(copy.deepcopy(graph), list(arguments))
            compiled(*arguments)
    except _Captured as captured:
        return Lowered(captured.text, dict(sizes.names))
    except Exception as error:
        raise LoweringFailed(_one_line(error)) from error
    raise LoweringFailed("the graph has nothing to compute on the device")


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"[:300]
