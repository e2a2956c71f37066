"""Tensors that have a shape, strides and an address but no memory.

At the large form a candidate's host code runs on them; they live on the meta device, and say that they
are CUDA tensors.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.utils.weak import WeakTensorKeyDictionary

from engine.judging.workers.emulation import CudaStandIn, standing_in

_GAP = 2 << 20
"""Bytes between two stand-in storages, so that an access past the end of one meets nothing."""

_FACTORIES = frozenset(
    (
        "empty",
        "zeros",
        "ones",
        "full",
        "rand",
        "randn",
        "randint",
        "randperm",
        "arange",
        "range",
        "linspace",
        "logspace",
        "eye",
        "empty_strided",
        "empty_permuted",
        "tril_indices",
        "triu_indices",
        "bartlett_window",
        "hann_window",
        "normal",
        "complex",
    )
)


class Memory:
    """Gives every storage an address and a number, and keeps it alive so that neither is given twice."""

    def __init__(self) -> None:
        self._next = 1 << 40
        self._places: dict[int, tuple[int, int, Any]] = {}

    def place(self, tensor: torch.Tensor) -> tuple[int, int, int]:
        """The number, address and size in bytes of the storage behind a tensor."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        size = int(storage.nbytes())
        if key not in self._places:
            self._places[key] = (len(self._places), self._next, storage)
            self._next += (size // _GAP + 2) * _GAP
        number, address, _ = self._places[key]
        return number, address, size

    def address(self, tensor: torch.Tensor) -> int:
        """The address of a tensor's first element."""
        return self.place(tensor)[1] + int(tensor.storage_offset()) * tensor.element_size()


def extent_bytes(tensor: torch.Tensor) -> int:
    """Bytes from the first to the last element of a tensor, both included."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def distinct_bytes(tensor: torch.Tensor) -> int:
    """Bytes of a tensor's elements, those repeated by a stride of zero counted once."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        if stride != 0 or size == 0:
            count *= size
    return count * tensor.element_size()


class StandIns(CudaStandIn):
    """While active, every new tensor is without memory, and questions about values are answered with zeros.

    `notes` says which such questions were asked; `memory` gives the tensors their addresses.
    """

    def __init__(self) -> None:
        super().__init__()
        self.device = "meta"
        self.memory = Memory()
        self.notes: dict[str, None] = {}
        self.fused_call: Callable[[str, Sequence[torch.Tensor], torch.Tensor, float], None] | None = None
        tensor: Any = torch.Tensor
        self._answers: dict[Any, Callable[..., Any]] = {
            tensor.data_ptr: lambda x: self.memory.address(x),
            tensor.cpu: self._to_host,
            tensor.item: self._zero,
            tensor.tolist: lambda x: self._zeros(x).tolist(),
            tensor.numpy: lambda x, *args, **kwargs: self._zeros(x).numpy(),
            tensor.record_stream: lambda x, *args, **kwargs: None,
            tensor.__bool__: lambda x: bool(self._zero(x)),
            tensor.__int__: lambda x: int(self._zero(x)),
            tensor.__float__: lambda x: float(self._zero(x)),
            tensor.__index__: lambda x: int(self._zero(x)),
            torch.equal: lambda x, y: False,
            nn.functional.scaled_dot_product_attention: self._attention,
        }

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Answers for a tensor without memory, or passes the call on as for any tensor on the GPU."""
        given = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name == "__get__" and func in (_IS_META, _IS_CPU):
            return False
        if name == "__get__" and func == _DEVICE:
            return _CUDA
        if func is torch.device:
            # A mode below this one would replace what stays a CUDA device until a tensor is made on it.
            with torch._C.DisableTorchFunction():
                return func(*args, **given)
        answer = self._answers.get(func) if name != "__get__" else None
        if answer is not None:
            return answer(*args, **given)
        if name in _FACTORIES and given.get("device") is None:
            given["device"] = "meta"
        given.pop("pin_memory", None)
        return super().__torch_function__(func, types, args, given)

    def _to_host(self, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        self.notes["host code copies a tensor from the device"] = None
        return tensor

    def _zero(self, tensor: torch.Tensor) -> Any:
        if not tensor.is_meta:
            return tensor.item()
        self.notes["host code reads a value; it is taken as zero"] = None
        return torch.zeros((), dtype=tensor.dtype).item()

    def _zeros(self, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_meta:
            return tensor
        if tensor.numel() > 1 << 20:
            raise RuntimeError("host code reads a large tensor back from the device, which cannot be modelled")
        self.notes["host code reads values; they are taken as zeros"] = None
        return torch.zeros(tensor.shape, dtype=tensor.dtype)

    def _attention(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kw: Any) -> Any:
        out = query.new_empty((*query.shape[:-1], value.shape[-1]))
        if self.fused_call is not None:
            pairs = query[..., 0].numel() * key.shape[-2]
            flops = 2.0 * pairs * (query.shape[-1] + value.shape[-1])
            causal = kw.get("is_causal", args[2] if len(args) > 2 else False)
            self.fused_call("scaled_dot_product_attention", (query, key, value), out, flops / 2 if causal else flops)
        return out


_tensor: Any = torch.Tensor
_IS_META, _IS_CPU, _DEVICE = _tensor.is_meta.__get__, _tensor.is_cpu.__get__, _tensor.device.__get__
_CUDA = torch.device("cuda", 0)


def large_inputs(shapes: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Stand-in tensors for the large form; entries with `value` are passed through.

    Args:
        shapes: one mapping for each input: `shape`, `dtype` by its PyTorch name, and `stride` where the
            tensor is not contiguous; or `value` for an input that is no tensor.
    """
    inputs: list[Any] = []
    for entry in shapes:
        if "value" in entry:
            inputs.append(entry["value"])
            continue
        dtype = getattr(torch, str(entry["dtype"]).removeprefix("torch."))
        if entry.get("stride") is not None:
            inputs.append(torch.empty_strided(entry["shape"], entry["stride"], dtype=dtype, device="meta"))
        else:
            inputs.append(torch.empty(entry["shape"], dtype=dtype, device="meta"))
    return inputs


def describe_inputs(inputs: Sequence[Any]) -> list[dict[str, Any]]:
    """The opposite of `large_inputs`: shapes, strides and dtypes as plain JSON.

    Raises:
        ValueError: for an input that is neither a tensor nor a plain value.
    """
    described: list[dict[str, Any]] = []
    for value in inputs:
        if isinstance(value, torch.Tensor):
            dtype = str(value.dtype).removeprefix("torch.")
            described.append({"shape": list(value.shape), "dtype": dtype, "stride": list(value.stride())})
        elif value is None or isinstance(value, bool | int | float | str):
            described.append({"value": value})
        else:
            raise ValueError(f"an input of type {type(value).__name__} has no stand-in")
    return described


def stand_in(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same shape, strides and dtype without memory."""
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(made, requires_grad=tensor.requires_grad)
    return made


def stand_in_module(module: nn.Module) -> nn.Module:
    """Replaces a module's parameters, buffers and tensor attributes by stand-ins, in place; ties are kept."""
    made: Any = WeakTensorKeyDictionary()
    keep: list[torch.Tensor] = []

    def replaced(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_meta:
            return tensor
        if tensor not in made:
            made[tensor] = stand_in(tensor)
            keep.append(tensor)
        result: torch.Tensor = made[tensor]
        return result

    for part in module.modules():
        holders: tuple[dict[str, Any], ...] = (part._parameters, part._buffers, part.__dict__)
        for entries in holders:
            for name, value in list(entries.items()):
                if isinstance(value, torch.Tensor):
                    entries[name] = replaced(value)
    return module


class _IdleDynamo(ModuleType):
    """Takes the place of torch._dynamo where it is only asked to leave a function alone.

    PyTorch's shape functions ask for that and would import the whole compiler, which takes seconds. Whoever
    wants anything else gets the real module.
    """

    @staticmethod
    def disable(function: Any, *args: Any, **kwargs: Any) -> Any:
        """The function as it is."""
        return function

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        sys.modules.pop(self.__name__, None)
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def _idle_dynamo() -> Iterator[None]:
    name = "torch._dynamo"
    if name in sys.modules:
        yield
        return
    idle = sys.modules[name] = _IdleDynamo(name)
    try:
        yield
    finally:
        if sys.modules.get(name) is idle:
            del sys.modules[name]
            if torch.__dict__.get("_dynamo") is idle:
                delattr(torch, "_dynamo")


@contextmanager
def without_memory() -> Iterator[StandIns]:
    """While active, every new tensor is a stand-in: a task's inputs and modules of any size cost nothing."""
    with _idle_dynamo(), standing_in("meta"), StandIns() as mode, torch.no_grad():
        yield mode
