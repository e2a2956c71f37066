"""What aten's matrix products, attention and pooling mean."""

from __future__ import annotations

from collections.abc import Callable

import torch

from engine.lowering.templates.calls import Call, Result
from engine.lowering.templates.graph import Mismatch, Shape, Value, make, reduced


def _matmul(call: Call) -> Result:
    return product(call.value(0), call.value(1), call.shape)


def _matrix_vector(call: Call) -> Result:
    left, right = call.value(0), call.value(1)
    if left.dtype is not torch.float32:
        raise Mismatch("No template knows a matrix times a vector in half precision.")
    if len(right.shape) == 2:
        if right.op != "input":
            raise Mismatch("A factor of its matrix product is computed first.")
        layout = right.text("layout")
        right = call.reader.host(right, f"{right.text('text')}.squeeze(-1)", right.shape[:1], layout)
    return reduced("sum", make("mul", left, right), [1], len(call.shape) == 2)


def _mm(call: Call) -> Result:
    return _matrix_vector(call) if call.shape[1] == call.small_shape[1] == 1 else _matmul(call)


def product(left: Value, right: Value, shape: Shape) -> Value:
    """A matrix product, batched where there are three axes."""
    return Value("matmul", (left, right), shape, left.dtype, "product")


def _addmm(call: Call) -> Result:
    if call.raw(3, "beta", 1) != 1 or call.raw(4, "alpha", 1) != 1:
        raise Mismatch("No template knows a matrix product with beta or alpha.")
    return make("add", product(call.value(1), call.value(2), call.shape), call.value(0), dtype=call.dtype)


def _attention(call: Call) -> Result:
    if call.raw(4, "dropout_p", 0.0) != 0 or call.raw(7, "enable_gqa", False):
        raise Mismatch("No template knows attention with dropout or grouped heads.")
    inputs = [call.value(index) for index in range(3)]
    if call.raw(3, "attn_mask") is not None:
        inputs.append(call.value(3))
    scale = call.value(6, "scale") if call.raw(6, "scale") is not None else None
    settings = {"causal": bool(call.raw(5, "is_causal", False)), "scale": scale}
    return Value("attention", tuple(inputs), call.shape, call.dtype, "", settings)


def _pool(kind: str) -> Callable[[Call], Result]:
    def handler(call: Call) -> Result:
        kernel = _two(call.raw(1))
        stride = _two(call.raw(2)) if call.raw(2) else kernel
        padding = _two(call.raw(3, "padding", 0))
        settings: dict[str, object] = {"kind": kind, "kernel": kernel, "stride": stride, "padding": padding}
        if kind == "max":
            settings |= {"dilation": _two(call.raw(4, "dilation", 1)), "counts_padding": False}
            if call.raw(5, "ceil_mode", False):
                raise Mismatch("No template knows pooling in ceil mode.")
        else:
            settings |= {"dilation": (1, 1), "counts_padding": bool(call.raw(5, "count_include_pad", True))}
            if call.raw(4, "ceil_mode", False) or call.raw(6, "divisor_override") is not None:
                raise Mismatch("No template knows pooling in ceil mode or with its own divisor.")
        value = call.value(0)
        shape = call.shape
        if kind == "max":
            shape = call.results[0]
        result = Value("pool", (value,), shape, value.dtype, "pooled", settings)
        return (result,) if kind == "max" else result

    return handler


def _two(argument: object) -> tuple[int, int]:
    if isinstance(argument, int):
        return argument, argument
    assert isinstance(argument, (list, tuple))
    return int(argument[0]), int(argument[-1])


HANDLERS: dict[str, Callable[[Call], Result]] = {
    "mm": _mm,
    "mv": _matrix_vector,
    "bmm": _matmul,
    "addmm": _addmm,
    "scaled_dot_product_attention": _attention,
    "max_pool2d_with_indices": _pool("max"),
    "avg_pool2d": _pool("avg"),
}
