"""Tensors that have a shape, strides and an address but no memory, and the illusion of a GPU around them.

A candidate's host code sees CUDA tensors; underneath they live on the meta device (large form, nothing
can be dereferenced) or on the CPU (small form, the interpreter works on them).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

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


class PretendCuda(TorchFunctionMode):
    """While active, tensors of the `target` device say that they are CUDA tensors, and the other way round.

    With the target `meta`, new tensors have no memory and questions about values are answered with zeros;
    `notes` says which.
    """

    def __init__(self, target: str) -> None:
        super().__init__()
        self.target = target
        self.memory = Memory()
        self.notes: dict[str, None] = {}
        self.fused_call: Callable[[str, Sequence[torch.Tensor], torch.Tensor, float], None] | None = None
        tensor: Any = torch.Tensor
        self._answers: dict[Any, Callable[..., Any]] = {
            tensor.is_cuda.__get__: self._is_pretended,
            tensor.is_cpu.__get__: lambda x, *rest: not self._is_pretended(x),
            tensor.is_meta.__get__: lambda x, *rest: False,
            tensor.device.__get__: self._device,
            tensor.get_device: lambda x: 0 if self._is_pretended(x) else -1,
            tensor.cuda: lambda x, *args, **kwargs: x.to(self.target),
            tensor.pin_memory: lambda x, *args, **kwargs: x,
            tensor.record_stream: lambda x, *args, **kwargs: None,
        }
        if target == "meta":
            self._answers |= {
                tensor.data_ptr: lambda x: self.memory.address(x),
                tensor.cpu: self._to_host,
                tensor.item: lambda x: self._zero(x, "item"),
                tensor.tolist: lambda x: self._zeros(x).tolist(),
                tensor.numpy: lambda x, *args, **kwargs: self._zeros(x).numpy(),
                tensor.__bool__: lambda x: bool(self._zero(x, "bool")),
                tensor.__int__: lambda x: int(self._zero(x, "int")),
                tensor.__float__: lambda x: float(self._zero(x, "float")),
                tensor.__index__: lambda x: int(self._zero(x, "index")),
                torch.equal: lambda x, y: False,
                nn.functional.scaled_dot_product_attention: self._attention,
            }

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Answers for the device, or passes the call on with its devices replaced."""
        kwargs = dict(kwargs or {})
        try:
            answer = self._answers.get(func)
        except TypeError:
            answer = None
        if answer is not None:
            return answer(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name in ("to", "_parse_to", "new_empty", "new_zeros", "new_full", "new_ones", "new_tensor", "type"):
            args = tuple(self._replaced(value) for value in args)
        if "device" in kwargs:
            kwargs["device"] = self._replaced(kwargs["device"])
        if self.target == "meta" and name in _FACTORIES and kwargs.get("device") is None:
            kwargs["device"] = "meta"
        kwargs.pop("pin_memory", None)
        return func(*args, **kwargs)

    def _is_pretended(self, tensor: torch.Tensor, *rest: Any) -> bool:
        return self.target == "cpu" or tensor.device.type == self.target

    def _device(self, tensor: torch.Tensor, *rest: Any) -> torch.device:
        return torch.device("cuda", 0) if self._is_pretended(tensor) else tensor.device

    def _replaced(self, value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device(self.target) if value.type == "cuda" else value
        if isinstance(value, str) and value.partition(":")[0] == "cuda":
            return self.target
        return value

    def _to_host(self, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        self.notes["host code copies a tensor from the device"] = None
        return tensor

    def _zero(self, tensor: torch.Tensor, how: str) -> Any:
        if tensor.device.type != "meta":
            return tensor.item()
        self.notes[f"host code reads a value ({how}); it is taken as zero"] = None
        return torch.zeros((), dtype=tensor.dtype).item()

    def _zeros(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type != "meta":
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
        if tensor.device.type == "meta":
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


@contextmanager
def without_memory() -> Iterator[PretendCuda]:
    """While active, every new tensor is a stand-in: a task's inputs and modules of any size cost nothing."""
    with PretendCuda("meta") as mode, torch.no_grad():
        yield mode
