"""Triton's numpy builder with an eye on it: what sampled programs do is told to an observer, not done.

Depends on the insides of Triton's interpreter (tried with 3.6 and 3.7), as `interpreter_patches` does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import triton.language as tl
from triton.runtime import interpreter

from engine.judging.workers import interpreter_math
from engine.judging.workers.bounds import Bounds


class Observer(Protocol):
    """What sampled programs tell about themselves, instead of touching memory."""

    def loop(self, steps: range, unrolled: bool) -> Iterator[int]:
        """Chooses which of a loop's iterations are run."""
        ...

    def may_continue(self, line: int) -> bool:
        """Whether a `while` loop may go round once more."""
        ...

    def barrier(self) -> None:
        """All threads waited for each other."""
        ...

    def count(self, kind: str, elements: float) -> None:
        """Operations of one kind on that many elements."""
        ...

    def dot(self, dtype: str, precision: str, shape: tuple[int, int, int]) -> None:
        """One matrix product of (m, n, k)."""
        ...

    def access(
        self, kind: str, addresses: npt.NDArray[np.uint64], mask: npt.NDArray[np.bool_] | None, itemsize: int
    ) -> None:
        """A load, store or atomic of all lanes."""
        ...


class Watch:
    """The observer of the programs that run now; None while they are to work in earnest."""

    observer: Observer | None = None


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """While active, memory is left alone and the observer is told."""
    before = Watch.observer
    Watch.observer = observer
    try:
        yield
    finally:
        Watch.observer = before


def install_builder() -> None:
    """Makes the interpreter use the observed builder."""

    class ObservedBuilder(interpreter.InterpreterBuilder):  # type: ignore[misc]
        """Triton's numpy builder, with memory and matrix products replaced while an observer is active."""

        def get_bf16(self, value: float) -> Any:
            """A constant beside bfloat16 values, which the compiler's builder has and the interpreter's has not."""
            return interpreter.TensorHandle(interpreter_math.narrow(np.array([value], dtype=np.float32)), tl.bfloat16)

        def create_masked_load(
            self, ptrs: Any, mask: Any, other: Any, cache_modifier: Any, eviction_policy: Any, is_volatile: Any
        ) -> Any:
            observer = Watch.observer
            if observer is None:
                _check("load", ptrs, _flags(mask))
                return super().create_masked_load(ptrs, mask, other, cache_modifier, eviction_policy, is_volatile)
            kind = ptrs.get_element_ty()
            dtype = interpreter._get_np_dtype(kind)
            observer.access("load", ptrs.data, _flags(mask), dtype.itemsize)
            return interpreter.TensorHandle(np.zeros(ptrs.data.shape, dtype=dtype), kind)

        def create_masked_store(
            self, ptrs: Any, value: Any, mask: Any, cache_modifier: Any, eviction_policy: Any
        ) -> Any:
            observer = Watch.observer
            if observer is None:
                _check("store", ptrs, _flags(mask))
                return super().create_masked_store(ptrs, value, _as_handle(mask), cache_modifier, eviction_policy)
            observer.access("store", ptrs.data, _flags(mask), _itemsize(ptrs))
            return None

        def create_load(self, ptr: Any, cache: Any, eviction: Any, is_volatile: Any) -> Any:
            if Watch.observer is None:
                _check("load", ptr, None)
                return super().create_load(ptr, cache, eviction, is_volatile)
            return self.create_masked_load(ptr, None, None, cache, eviction, is_volatile)

        def create_store(self, ptr: Any, value: Any, cache: Any, eviction: Any) -> Any:
            if Watch.observer is None:
                _check("store", ptr, None)
                return super().create_store(ptr, value, cache, eviction)
            return self.create_masked_store(ptr, value, None, cache, eviction)

        def create_atomic_rmw(self, op: Any, ptr: Any, value: Any, mask: Any, sem: Any, scope: Any) -> Any:
            observer = Watch.observer
            if observer is None:
                _check("atomic", ptr, _flags(mask))
                return super().create_atomic_rmw(op, ptr, value, mask, sem, scope)
            observer.access("atomic", ptr.data, _flags(mask), _itemsize(ptr))
            return interpreter.TensorHandle(np.zeros_like(value.data), value.dtype.scalar)

        def create_atomic_cas(self, ptr: Any, expected: Any, value: Any, sem: Any, scope: Any) -> Any:
            observer = Watch.observer
            if observer is None:
                _check("atomic", ptr, None)
                return super().create_atomic_cas(ptr, expected, value, sem, scope)
            observer.access("atomic", ptr.data, None, _itemsize(ptr))
            return interpreter.TensorHandle(np.array(expected.data), expected.dtype.scalar)

        def create_dot(self, a: Any, b: Any, d: Any, input_precision: Any, *rest: Any) -> Any:
            observer = Watch.observer
            if observer is None:
                return interpreter_math.dot(super().create_dot, a, b, d, input_precision, *rest)
            m, k = a.data.shape[-2:]
            batch = int(np.prod(a.data.shape[:-2], dtype=np.int64))
            for _ in range(batch):
                observer.dot(
                    a.dtype.scalar.name, str(input_precision).rpartition(".")[2].lower(), (m, b.data.shape[-1], k)
                )
            return d

        def binary_op(self, lhs: Any, rhs: Any, op: Any) -> Any:
            if Watch.observer is not None:
                Watch.observer.count(_kind(lhs.dtype), lhs.data.size)
            return interpreter_math.elementwise(super().binary_op, op, lhs, rhs)

        def unary_op(self, arg: Any, op: Any) -> Any:
            if Watch.observer is not None:
                Watch.observer.count("special" if op in _SPECIAL else _kind(arg.dtype), arg.data.size)
            return interpreter_math.elementwise(super().unary_op, op, arg)

        def ternary_op(self, lhs: Any, rhs: Any, other: Any, op: Any) -> Any:
            if Watch.observer is not None:
                Watch.observer.count(_kind(other.dtype), other.data.size)
            if op is np.clip:
                return interpreter_math.elementwise(super().ternary_op, op, lhs, rhs, other)
            return super().ternary_op(lhs, rhs, other, op)

        def create_fdiv(self, lhs: Any, rhs: Any) -> Any:
            if Watch.observer is not None:
                Watch.observer.count("special", lhs.data.size)
            return self.binary_op(lhs, rhs, np.divide)

        def create_fma(self, x: Any, y: Any, z: Any) -> Any:
            if Watch.observer is not None:
                Watch.observer.count(_kind(z.dtype), z.data.size)
            return interpreter_math.fused_multiply_add(super().create_fma, x, y, z)

        def create_erf(self, arg: Any) -> Any:
            if Watch.observer is not None:
                Watch.observer.count("special", arg.data.size)
                Watch.observer.count("fp32", 16 * arg.data.size)
                return arg
            return interpreter_math.erf(arg)

        def create_extern_elementwise(
            self, library: Any, path: Any, symbol: Any, arguments: Any, result_type: Any, pure: Any
        ) -> Any:
            observer = Watch.observer
            if observer is None:
                wide = [interpreter_math.wide(argument) for argument in arguments]
                return super().create_extern_elementwise(library, path, symbol, wide, result_type, pure)
            observer.count("special", 2.0 * arguments[0].data.size)
            dtype = interpreter._get_np_dtype(result_type.scalar)
            return interpreter.TensorHandle(np.zeros(arguments[0].data.shape, dtype=dtype), result_type.scalar)

        def create_inline_asm(self, text: Any, constraints: Any, values: Any, kinds: Any, pure: Any, pack: Any) -> Any:
            raise NotImplementedError("inline assembly cannot be interpreted: write it with tl.math")

        def create_rsqrt(self, arg: Any) -> Any:
            if Watch.observer is not None:
                Watch.observer.count("special", arg.data.size)
            return super().create_rsqrt(arg)

        def cast_impl(self, src: Any, dst_type: Any) -> Any:
            if Watch.observer is not None:
                Watch.observer.count("convert", src.data.size)
            return interpreter_math.cast(super().cast_impl, src, dst_type)

        def create_fp_to_fp(self, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
            if Watch.observer is not None:
                Watch.observer.count("convert", src.data.size)
            return interpreter_math.cast(
                lambda value, kind: super(ObservedBuilder, self).create_fp_to_fp(value, kind, rounding_mode),
                src,
                dst_type,
            )

        def create_assert(self, condition: Any, message: Any) -> Any:
            if Watch.observer is not None:
                return None
            return super().create_assert(bool(np.all(getattr(condition, "data", condition))), message)

        def create_assume(self, condition: Any) -> Any:
            return None if Watch.observer is not None else super().create_assume(condition)

        def create_print(self, *args: Any) -> Any:
            return None if Watch.observer is not None else super().create_print(*args)

    builder = interpreter.interpreter_builder
    builder.__class__ = ObservedBuilder
    builder.options = dataclasses.replace(
        builder.options, allowed_dot_input_precisions=("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")
    )


_SPECIAL = frozenset({np.exp, np.exp2, np.log, np.log2, np.sin, np.cos, np.sqrt})


def _check(kind: str, pointers: Any, mask: npt.NDArray[np.bool_] | None) -> None:
    if Bounds.active is not None:
        Bounds.active.check(kind, pointers.data, mask, _itemsize(pointers))


def _flags(mask: Any) -> npt.NDArray[np.bool_] | None:
    if mask is None:
        return None
    data = getattr(mask, "data", mask)
    return np.asarray(data, dtype=bool)


def _as_handle(mask: Any) -> Any:
    # Block pointers hand over a bare array where everything else hands over a handle.
    return interpreter.TensorHandle(mask, tl.int1) if isinstance(mask, np.ndarray) else mask


def _itemsize(pointer: Any) -> int:
    return int(interpreter._get_np_dtype(pointer.get_element_ty()).itemsize)


def _kind(dtype: Any) -> str:
    scalar = dtype.scalar
    if scalar.is_floating():
        width = scalar.primitive_bitwidth
        return "fp64" if width == 64 else "fp32" if width == 32 else "fp16"
    return "int"
