"""Arithmetic that Triton's interpreter lacks, gets wrong or does slowly, in numpy.

bfloat16 is kept by the interpreter as raw 16-bit integers and computed with as such, so values are
widened here first; a reduction with its own combine function goes through every element in Python,
where whole slices can be combined at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import triton.language as tl
from triton.runtime import interpreter

Array = npt.NDArray[Any]


def widen(data: Array) -> Array:
    """bfloat16 bits as float32 values."""
    return (np.ascontiguousarray(data).astype(np.uint32) << 16).view(np.float32)


def narrow(data: Array) -> Array:
    """float32 values as bfloat16 bits, rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(data, dtype=np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(data), np.uint16(0x7FC0), rounded)


def _is_bfloat16(handle: Any) -> bool:
    return bool(handle.dtype.scalar == tl.bfloat16)


def wide(handle: Any) -> Any:
    """A bfloat16 value as float32; any other as it is."""
    return interpreter.TensorHandle(widen(handle.data), tl.float32) if _is_bfloat16(handle) else handle


def elementwise(original: Callable[..., Any], op: Any, *operands: Any) -> Any:
    """Applies a numpy function, to bfloat16 operands by way of float32."""
    if not any(_is_bfloat16(operand) for operand in operands):
        return original(*operands, op)
    result = original(*map(wide, operands), op)
    if result.data.dtype == np.bool_:
        return result
    return interpreter.TensorHandle(narrow(result.data), tl.bfloat16)


def fused_multiply_add(original: Callable[..., Any], x: Any, y: Any, z: Any) -> Any:
    """Computes x * y + z in the type of z."""
    if not _is_bfloat16(z):
        return original(x, y, z)
    return interpreter.TensorHandle(narrow(original(wide(x), wide(y), wide(z)).data), tl.bfloat16)


def cast(original: Callable[[Any, Any], Any], source: Any, target: Any) -> Any:
    """Converts between types; every way into or out of bfloat16 goes through float32."""
    wanted = target.scalar
    if _is_bfloat16(source) and wanted != tl.bfloat16:
        widened = wide(source)
        return widened if wanted == tl.float32 else original(widened, target)
    if wanted == tl.bfloat16 and not _is_bfloat16(source) and source.dtype.scalar.primitive_bitwidth >= 16:
        return interpreter.TensorHandle(narrow(source.data.astype(np.float32)), tl.bfloat16)
    return original(source, target)


def dot(original: Callable[..., Any], a: Any, b: Any, accumulator: Any, *rest: Any) -> Any:
    """A matrix product, with bfloat16 operands widened first."""
    if not (_is_bfloat16(a) or _is_bfloat16(b)):
        return original(a, b, accumulator, *rest)
    product = np.matmul(wide(a).data, wide(b).data, dtype=accumulator.data.dtype) + accumulator.data
    return interpreter.TensorHandle(product, accumulator.dtype.scalar)


def erf(handle: Any) -> Any:
    """The error function; numpy has none, and Triton's goes through every element in Python."""
    with torch._C.DisableTorchFunction():
        values = torch.erf(torch.from_numpy(np.array(handle.data))).numpy()
    return interpreter.TensorHandle(values, handle.dtype.scalar)


def _combine_slices(operator: Any, left: list[Array], right: list[Array], kinds: list[Any]) -> list[Array]:
    """Applies a combine function to two slices of each operand."""

    def tensors(parts: list[Array]) -> list[Any]:
        return [operator.to_tensor(part, kind) for part, kind in zip(parts, kinds, strict=True)]

    result = operator.combine_fn.fn(*tensors(left), *tensors(right))
    values = result if isinstance(result, tuple) else (result,)
    combined = []
    for value, part in zip(values, left, strict=True):
        data = value.handle.data if isinstance(value, tl.core.tensor) else np.asarray(value)
        combined.append(np.broadcast_to(np.asarray(data).astype(part.dtype, copy=False).reshape(-1), (part.size,)))
    return [value.reshape(part.shape) for value, part in zip(combined, left, strict=True)]


def _reduce(self: Any, data: Any) -> Any:
    """Replaces ReduceOps.generic_reduce: neighbours are combined until one slice is left."""
    original_axis, rank = self.axis, len(data[0].handle.data.shape)
    operands, axis = self.unravel(data, self.axis)
    kinds = [operand.dtype for operand in operands]
    parts = [np.moveaxis(operand.handle.data, axis, 0) for operand in operands]
    while parts[0].shape[0] > 1:
        even = parts[0].shape[0] // 2 * 2
        merged = _combine_slices(self, [part[0:even:2] for part in parts], [part[1:even:2] for part in parts], kinds)
        parts = [np.concatenate([new, old[even:]]) for new, old in zip(merged, parts, strict=True)]
    results = []
    for part, kind in zip(parts, kinds, strict=True):
        value: Any = part[0]
        if self.keep_dims:
            value = np.expand_dims(value, axis) if original_axis is not None else value.reshape((1,) * rank)
        elif original_axis is None:
            value = value.item()
        results.append(self.to_tensor(value, kind))
    return results


def _scan(self: Any, data: Any) -> Any:
    """Replaces ScanOps.generic_scan: slices along the axis are combined one after the other."""
    kinds = [operand.dtype for operand in data]
    parts = [np.moveaxis(operand.handle.data, self.axis, 0) for operand in data]
    outputs = [np.array(part) for part in parts]
    for index in range(1, parts[0].shape[0]):
        merged = _combine_slices(self, [out[index - 1] for out in outputs], [part[index] for part in parts], kinds)
        for out, value in zip(outputs, merged, strict=True):
            out[index] = value
    moved = [np.moveaxis(out, 0, self.axis) for out in outputs]
    return [self.to_tensor(value, kind) for value, kind in zip(moved, kinds, strict=True)]


def install() -> None:
    """Makes reductions and scans with a combine function of their own work on whole slices."""
    interpreter.ReduceOps.generic_reduce = _reduce
    interpreter.ScanOps.generic_scan = _scan
