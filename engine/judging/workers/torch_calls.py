"""Counts what PyTorch's own operators move and compute, on tensors without memory.

Used twice: for the library calls a candidate makes beside its kernels, and for the reference, which
gives the eager baseline and a lower bound for any fused form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from engine.judging.workers.eager_costs import pooled_operations, slowdown
from engine.judging.workers.stand_ins import (
    StandIns,
    distinct_bytes,
    stand_in,
    stand_in_module,
    without_memory,
)


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """One operator: bytes read and written, floating-point operations of matrix products and of the rest.

    `slowdown` is how much longer it takes than these alone would (`eager_costs`).
    """

    op: str
    read_bytes: int
    write_bytes: int
    flops: float
    operations: float
    dtype: str
    reads: Mapping[int, int]
    writes: Mapping[int, int]
    slowdown: float = 1.0

    def to_json(self) -> dict[str, Any]:
        """Plain values; `reads` and `writes` give the bytes of each numbered storage."""
        return {
            "kind": "library",
            **{
                name: getattr(self, name)
                for name in ("op", "read_bytes", "write_bytes", "flops", "operations", "dtype", "slowdown")
            },
            "reads": {str(number): size for number, size in self.reads.items()},
            "writes": {str(number): size for number, size in self.writes.items()},
        }


_FREE = frozenset(
    (
        "empty",
        "empty_like",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "detach",
        "alias",
        "lift_fresh",
        "lift",
        "set_",
        "resize_",
        "_local_scalar_dense",
        "is_same_size",
        "sym_size",
        "sym_stride",
        "sym_numel",
        "_assert_async",
    )
)
"""Operators that only touch metadata or the allocator."""

_WRITE_ONLY = frozenset(
    (
        "fill_",
        "zero_",
        "copy_",
        "uniform_",
        "normal_",
        "random_",
        "bernoulli_",
        "exponential_",
        "cauchy_",
        "log_normal_",
        "arange",
    )
)
"""In-place operators that do not read what they overwrite."""

_GATHERS = {"embedding": 0, "index": 0, "gather": 0, "index_select": 0, "take": 0, "nll_loss_forward": 0}
"""Operators that read of this argument only what an index points at."""

_SCATTERS = frozenset(("index_put_", "index_copy_", "index_add_", "index_fill_", "scatter_", "scatter_add_"))
"""In-place operators that touch only what an index points at."""

_COSTS = {
    **dict.fromkeys(("_softmax", "_log_softmax", "native_layer_norm", "native_group_norm", "gelu", "erf"), 10.0),
    **dict.fromkeys(("exp", "log", "tanh", "sigmoid", "silu", "pow", "sin", "cos", "softplus", "mish"), 5.0),
}
"""Arithmetic for one element where it is more than a single operation."""


def _scattered_elements(name: str, args: Sequence[Any]) -> int:
    """How many elements of its first argument one of `_SCATTERS` touches."""
    target = args[0]
    if name.startswith("scatter"):
        return int(args[2].numel())
    if name != "index_put_":
        return int(args[2].numel()) * int(target.numel()) // max(1, int(target.shape[args[1]]))
    indexed = {dimension: index for dimension, index in enumerate(args[1]) if index is not None}
    picked = torch.broadcast_shapes(*(index.shape for index in indexed.values()))  # type: ignore[no-untyped-call]
    kept = [int(size) for dimension, size in enumerate(target.shape) if dimension not in indexed]
    return math.prod([*map(int, picked), *kept])


def matrix_flops(name: str, args: Sequence[Any], out: torch.Tensor | None) -> float:
    """Floating-point operations of a matrix product or convolution, two for each multiply-add; else zero."""
    if name in ("mm", "bmm", "_scaled_mm", "mv", "dot", "_int_mm"):
        return 2.0 * float(args[0].numel() * (args[1].shape[-1] if args[1].dim() > 1 else 1))
    if name in ("addmm", "baddbmm", "addmv", "addbmm", "_addmm_activation"):
        return 2.0 * float(args[1].numel() * (args[2].shape[-1] if args[2].dim() > 1 else 1))
    if name in ("convolution", "_convolution", "cudnn_convolution") and out is not None:
        weight = args[1]
        transposed = len(args) > 6 and bool(args[6])
        positions = args[0].numel() // args[0].shape[1] if transposed else out.numel() // out.shape[1]
        return 2.0 * float(positions * weight.numel())
    if name.startswith(("_scaled_dot_product", "_flash_attention", "_efficient_attention")):
        query, key, value = args[:3]
        return 2.0 * float(query[..., 0].numel() * key.shape[-2] * (query.shape[-1] + value.shape[-1]))
    return 0.0


@contextmanager
def counting_calls(mode: StandIns, into: list[Any]) -> Iterator[None]:
    """While active, operators on stand-ins of `mode` are appended to `into` as LibraryCalls."""
    with CallCounter(mode, into):
        yield


class CallCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Appends a LibraryCall for every operator that moves data."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """The default wraps the handler and imports all of torch._dynamo for it."""
        return False

    def __init__(self, mode: StandIns, into: list[Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.into = into
        self._mode = mode
        mode.fused_call = self._fused

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Runs the operator on its stand-ins and notes what it would have cost."""
        kwargs = dict(kwargs or {})
        result = func(*args, **kwargs)
        name = func._schema.name.rpartition("::")[2]
        if name not in _FREE:
            call = self._call(func, name, args, kwargs, result)
            if call is not None:
                self.into.append(call)
        return result

    def _number(self, tensor: torch.Tensor) -> int:
        return self._mode.memory.place(tensor)[0]

    def _call(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any
    ) -> LibraryCall | None:
        mutated, inputs = _split_arguments(func, args, kwargs)
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        taken = {self._number(tensor) for tensor in (*mutated, *inputs)}
        fresh = [tensor for tensor in outputs if self._number(tensor) not in taken]
        if not fresh and not mutated:
            return None
        written = [*fresh, *mutated]
        scattered = _scattered_elements(name, args) * args[0].element_size() if name in _SCATTERS else None
        adds = "add" in name or kwargs.get("accumulate", args[3] if name == "index_put_" and len(args) > 3 else False)
        overwrites = name in _WRITE_ONLY or func._schema.overload_name.endswith("out")
        overwrites = overwrites or (scattered is not None and not adds)
        read = inputs if overwrites else [*inputs, *mutated]
        distinct = {(self._number(tensor), tensor.storage_offset(), tuple(tensor.shape)): tensor for tensor in read}
        gathered = args[_GATHERS[name]] if name in _GATHERS else None
        reads: dict[int, int] = {}
        for tensor in distinct.values():
            size = distinct_bytes(tensor)
            if gathered is not None and tensor is gathered:
                # One sector for each class index; whole rows or elements for what is copied out.
                picked = args[1].numel() * 32 if name == "nll_loss_forward" else sum(map(distinct_bytes, fresh))
                size = min(size, picked)
            if scattered is not None and tensor is args[0]:
                size = min(size, scattered)
            number = self._number(tensor)
            reads[number] = reads.get(number, 0) + size
        elements = max((tensor.numel() for tensor in (*written, *distinct.values())), default=0)
        writes = _bytes_by_storage(self._number, written)
        if scattered is not None:
            writes = {number: min(size, scattered) for number, size in writes.items()}
            elements = scattered // args[0].element_size()
        out = fresh[0] if fresh else None
        flops = matrix_flops(name, args, out)
        plain = _COSTS.get(name, _COSTS.get(name.rstrip("_"), 1.0)) * elements
        return LibraryCall(
            op=name,
            read_bytes=sum(reads.values()),
            write_bytes=sum(writes.values()),
            flops=flops,
            operations=max(plain, pooled_operations(name, args, out)),
            dtype=str((written or read)[0].dtype).removeprefix("torch."),
            reads=reads,
            writes=writes,
            slowdown=slowdown(name, args, out, flops > 0),
        )

    def _fused(self, op: str, inputs: Sequence[torch.Tensor], out: torch.Tensor, flops: float) -> None:
        reads = _bytes_by_storage(self._number, inputs)
        writes = _bytes_by_storage(self._number, [out])
        self.into.append(
            LibraryCall(
                op=op,
                read_bytes=sum(reads.values()),
                write_bytes=sum(writes.values()),
                flops=flops,
                operations=flops / (4 * max(1, inputs[0].shape[-1])) * 10,
                dtype=str(out.dtype).removeprefix("torch."),
                reads=reads,
                writes=writes,
            )
        )


def _bytes_by_storage(number: Callable[[torch.Tensor], int], tensors: Sequence[torch.Tensor]) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for tensor in tensors:
        sizes[number(tensor)] = sizes.get(number(tensor), 0) + distinct_bytes(tensor)
    return sizes


def _split_arguments(
    func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Tensor arguments that the operator writes, and those that it only reads."""
    mutated: list[torch.Tensor] = []
    inputs: list[torch.Tensor] = []
    for index, argument in enumerate(func._schema.arguments):
        value = args[index] if index < len(args) else kwargs.get(argument.name)
        writes = argument.alias_info is not None and argument.alias_info.is_write
        for leaf in tree_leaves(value):
            if isinstance(leaf, torch.Tensor):
                (mutated if writes else inputs).append(leaf)
    return mutated, inputs


def count_reference(build: Callable[[], torch.nn.Module], inputs: Callable[[], Sequence[Any]]) -> dict[str, Any]:
    """What the reference costs at the large form, without memory for its tensors.

    Args:
        build: makes the reference module; called while every new tensor is a stand-in.
        inputs: makes the arguments, whose tensors are replaced by stand-ins of their shape.

    Returns:
        `calls` (the eager library calls as JSON), `outputs` (bytes of each) and `bound` (`bytes` that must move
        once: inputs and parameters that are read, outputs, and inputs that are changed; `flops` of matrix
        products; `operations` of the rest; `dtype` of the matrix products or else of the output).
    """
    with without_memory() as mode:
        module = stand_in_module(build())
        given = list(inputs())
        values = tree_map(lambda leaf: stand_in(leaf) if isinstance(leaf, torch.Tensor) else leaf, given)
        arguments = [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
        calls: list[LibraryCall] = []
        sources: dict[int, int] = {}
        changeable = {mode.memory.place(tensor)[0] for tensor in arguments}
        for tensor in (*module.parameters(), *module.buffers(), *arguments):
            number, _, _ = mode.memory.place(tensor)
            sources[number] = distinct_bytes(tensor)
        with counting_calls(mode, calls):
            result = module(*values)
        outputs: dict[int, int] = {}
        leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        for leaf in leaves:
            number, _, _ = mode.memory.place(leaf)
            if number not in sources:
                outputs[number] = max(outputs.get(number, 0), distinct_bytes(leaf))
    needed = 0
    for number, size in sources.items():
        needed += min(size, sum(call.reads.get(number, 0) for call in calls))
        if number in changeable:
            # What the reference changes in place is an output as well.
            needed += min(size, sum(call.writes.get(number, 0) for call in calls))
    matrix = [call for call in calls if call.flops > 0]
    flops = math.fsum(call.flops for call in calls)
    dtype = max(matrix, key=lambda call: call.flops).dtype if matrix else (calls[-1].dtype if calls else "float32")
    return {
        "calls": [call.to_json() for call in calls],
        "outputs": list(map(distinct_bytes, leaves)),
        "bound": {
            "bytes": needed + sum(outputs.values()),
            "flops": flops,
            "operations": 0.0,
            "dtype": dtype,
        },
    }
