"""Arithmetic that Triton's interpreter lacks, gets wrong or does slowly, in numpy.

bfloat16 is kept by the interpreter as raw 16-bit integers and computed with as such, so values are
widened here first; `libdevice` has no interpreted form at all; a reduction with its own combine function
goes through every element in Python, where whole slices can be combined at once.
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


def _wide(handle: Any) -> Any:
    return interpreter.TensorHandle(widen(handle.data), tl.float32) if _is_bfloat16(handle) else handle


def elementwise(original: Callable[..., Any], op: Any, *operands: Any) -> Any:
    """Applies a numpy function, to bfloat16 operands by way of float32."""
    if not any(_is_bfloat16(operand) for operand in operands):
        return original(*operands, op)
    result = original(*map(_wide, operands), op)
    if result.data.dtype == np.bool_:
        return result
    return interpreter.TensorHandle(narrow(result.data), tl.bfloat16)


def fused_multiply_add(original: Callable[..., Any], x: Any, y: Any, z: Any) -> Any:
    """Computes x * y + z in the type of z."""
    if not _is_bfloat16(z):
        return original(x, y, z)
    return interpreter.TensorHandle(narrow(original(_wide(x), _wide(y), _wide(z)).data), tl.bfloat16)


def cast(original: Callable[[Any, Any], Any], source: Any, target: Any) -> Any:
    """Converts between types; every way into or out of bfloat16 goes through float32."""
    wanted = target.scalar
    if _is_bfloat16(source) and wanted != tl.bfloat16:
        wide = _wide(source)
        return wide if wanted == tl.float32 else original(wide, target)
    if wanted == tl.bfloat16 and not _is_bfloat16(source) and source.dtype.scalar.primitive_bitwidth >= 16:
        return interpreter.TensorHandle(narrow(source.data.astype(np.float32)), tl.bfloat16)
    return original(source, target)


def dot(original: Callable[..., Any], a: Any, b: Any, accumulator: Any, *rest: Any) -> Any:
    """A matrix product, with bfloat16 operands widened first."""
    if not (_is_bfloat16(a) or _is_bfloat16(b)):
        return original(a, b, accumulator, *rest)
    product = np.matmul(_wide(a).data, _wide(b).data, dtype=accumulator.data.dtype) + accumulator.data
    return interpreter.TensorHandle(product, accumulator.dtype.scalar)


def erf(handle: Any) -> Any:
    """The error function; numpy has none."""
    return interpreter.TensorHandle(_by_torch(torch.erf)(handle.data), handle.dtype.scalar)


def _by_torch(function: Callable[..., torch.Tensor]) -> Callable[..., Array]:
    def apply(*arrays: Array) -> Array:
        with torch._C.DisableTorchFunction():
            result = function(*(torch.from_numpy(np.array(array)) for array in arrays))
        values: Array = result.numpy()
        return values

    return apply


LIBDEVICE: dict[str, Callable[..., Array]] = {
    "abs": np.abs,
    "fabs": np.abs,
    "ceil": np.ceil,
    "floor": np.floor,
    "trunc": np.trunc,
    "rint": np.rint,
    "nearbyint": np.rint,
    "round": _by_torch(lambda x: torch.sign(x) * torch.floor(torch.abs(x) + 0.5)),
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "cbrt": np.cbrt,
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: np.power(10.0, x),
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "fast_sinf": np.sin,
    "fast_cosf": np.cos,
    "fast_tanf": np.tan,
    "fast_expf": np.exp,
    "fast_exp10f": lambda x: np.power(10.0, x),
    "fast_logf": np.log,
    "fast_log2f": np.log2,
    "fast_log10f": np.log10,
    "fast_tanhf": np.tanh,
    "erf": _by_torch(torch.erf),
    "erfc": _by_torch(torch.erfc),
    "erfinv": _by_torch(torch.erfinv),
    "normcdf": _by_torch(torch.special.ndtr),
    "normcdfinv": _by_torch(torch.special.ndtri),
    "lgamma": _by_torch(torch.lgamma),
    "tgamma": _by_torch(lambda x: torch.exp(torch.lgamma(x))),
    "j0": _by_torch(torch.special.bessel_j0),
    "j1": _by_torch(torch.special.bessel_j1),
    "saturatef": lambda x: np.clip(x, 0, 1),
    "sinpi": lambda x: np.sin(np.pi * x),
    "cospi": lambda x: np.cos(np.pi * x),
    "pow": np.power,
    "fast_powf": np.power,
    "atan2": np.arctan2,
    "fmod": np.fmod,
    "remainder": lambda x, y: x - y * np.rint(x / y),
    "hypot": np.hypot,
    "copysign": np.copysign,
    "fdim": lambda x, y: np.maximum(x - y, 0),
    "fmin": np.fmin,
    "fmax": np.fmax,
    "min": np.minimum,
    "max": np.maximum,
    "fast_dividef": np.divide,
    "fast_fdividef": np.divide,
    "div_rn": np.divide,
    "add_rn": np.add,
    "mul_rn": np.multiply,
    "sub_rn": np.subtract,
    "rcp_rn": lambda x: 1 / x,
    "sqrt_rn": np.sqrt,
    "rsqrt_rn": lambda x: 1 / np.sqrt(x),
    "fma": lambda x, y, z: x * y + z,
    "fma_rn": lambda x, y, z: x * y + z,
    "ldexp": np.ldexp,
}
"""Functions of libdevice with the same values in numpy (CUDA libdevice user's guide)."""

LIBDEVICE_TESTS: dict[str, Callable[[Array], Array]] = {
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isinfd": np.isinf,
    "isnand": np.isnan,
    "finitef": np.isfinite,
    "isfinited": np.isfinite,
    "signbit": np.signbit,
}
"""Functions of libdevice that answer a question."""


def _extern(name: str, function: Callable[..., Array], question: bool, observer: Callable[[], Any]) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        tensors = [interpreter.interpreter_semantic.to_tensor(arg) for arg in args]
        handles = [_wide(tensor.handle) for tensor in tensors]
        arrays: list[Array] = list(np.broadcast_arrays(*(handle.data for handle in handles)))
        if not question and name not in ("abs", "min", "max") and arrays[0].dtype.kind in "iu":
            arrays = [array.astype(np.float32) for array in arrays]
        watcher = observer()
        if watcher is not None:
            watcher.count("special", 2.0 * arrays[0].size)
            values: Array = np.zeros(arrays[0].shape, dtype=arrays[0].dtype)
        else:
            values = function(*arrays).astype(arrays[0].dtype, copy=False)
        if question:
            values = values.astype(np.int32)
        kind = _triton_type(values.dtype)
        shaped = max((tensor for tensor in tensors), key=lambda tensor: tensor.handle.data.size)
        block = tl.block_type(kind, list(values.shape)) if shaped.type.is_block() else kind
        return tl.tensor(interpreter.TensorHandle(values, kind), block)

    call.__name__ = name
    return call


def _triton_type(dtype: np.dtype[Any]) -> Any:
    names = {"float16": tl.float16, "float32": tl.float32, "float64": tl.float64, "int32": tl.int32, "int64": tl.int64}
    return names.get(dtype.name) or getattr(tl, dtype.name)


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


def install(observer: Callable[[], Any]) -> None:
    """Supplies libdevice and the faster reductions; `observer` gives the active observer or None."""
    from triton.language.extra import libdevice
    from triton.language.extra.cuda import libdevice as cuda_libdevice

    for module in (libdevice, cuda_libdevice):
        for name, function in {**LIBDEVICE, **LIBDEVICE_TESTS}.items():
            setattr(module, name, _extern(name, function, name in LIBDEVICE_TESTS, observer))
    interpreter.ReduceOps.generic_reduce = _reduce
    interpreter.ScanOps.generic_scan = _scan
