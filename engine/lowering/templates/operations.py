"""What aten's pointwise operations and reductions mean in the graph; all handlers by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from engine.lowering.templates import heavy_operations, view_operations
from engine.lowering.templates.calls import Call, Result
from engine.lowering.templates.graph import FLOATS, Mismatch, Value, constant, make, moved_behind, reduced, reshape


def _pointwise(op: str, inputs: int) -> Callable[[Call], Result]:
    def handler(call: Call) -> Result:
        return moved_behind(op, *(call.value(index) for index in range(inputs)), dtype=call.dtype)

    return handler


def _scaled(op: str) -> Callable[[Call], Result]:
    """`add` and `sub` with their factor for the second operand."""

    def handler(call: Call) -> Result:
        second = call.value(1)
        factor = call.raw(2, "alpha", 1)
        if factor != 1:
            second = moved_behind("mul", second, call.value(2, "alpha"), dtype=call.dtype)
        return moved_behind(op, call.value(0), second, dtype=call.dtype)

    return handler


def _rsub(call: Call) -> Result:
    return moved_behind("sub", call.value(1), call.value(0), dtype=call.dtype)


def _div(call: Call) -> Result:
    if call.raw(2, "rounding_mode") is not None:
        raise Mismatch("No template knows division with rounding.")
    return moved_behind("div", call.value(0), call.value(1), dtype=call.dtype)


def _pow(call: Call) -> Result:
    base, exponent = call.value(0), call.value(1)
    named = {2: "square", 3: "cube", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
    number = exponent.constant
    if number is not None and number in named and base.op != "constant" and base.dtype in FLOATS:
        return moved_behind(named[number], base, dtype=call.dtype)
    if number == 1:
        return base
    if base.dtype in FLOATS and call.dtype in FLOATS:
        if number is not None and float(number).is_integer():
            size = moved_behind("power", moved_behind("abs", base), exponent, dtype=call.dtype)
            if int(number) % 2 == 0:
                return size
            return moved_behind(
                "where", moved_behind("lt", base, constant(0.0), dtype=torch.bool), moved_behind("neg", size), size
            )
        return moved_behind("power", base, exponent, dtype=call.dtype)
    raise Mismatch("No template knows powers of whole numbers.")


def _clamp(call: Call) -> Result:
    value = call.value(0)
    for index, name, op in ((1, "min", "maximum"), (2, "max", "minimum")):
        if call.raw(index, name) is not None:
            value = moved_behind(op, value, call.value(index, name), dtype=call.dtype)
    return value


def _hardtanh(call: Call) -> Result:
    low = call.value(1) if call.raw(1) is not None else constant(-1.0)
    high = call.value(2) if call.raw(2) is not None else constant(1.0)
    raised = moved_behind("maximum", call.value(0), low, dtype=call.dtype)
    return moved_behind("minimum", raised, high, dtype=call.dtype)


def _gelu(call: Call) -> Result:
    form = call.raw(1, "approximate", "none")
    return moved_behind("gelu_tanh" if form == "tanh" else "gelu", call.value(0))


def _leaky_relu(call: Call) -> Result:
    slope = call.value(1) if call.raw(1) is not None else constant(0.01)
    return moved_behind("leaky_relu", call.value(0), slope)


def _elu(call: Call) -> Result:
    alpha, scale, input_scale = (call.raw(index, default=1.0) for index in (1, 2, 3))
    if input_scale != 1:
        raise Mismatch("No template knows an ELU with a scaled input.")
    if alpha != 1 and scale != 1:
        return moved_behind("selu", call.value(0))
    if alpha == 1:
        return moved_behind("elu", call.value(0))
    return moved_behind("scaled_elu", call.value(0), call.value(1))


def _cast(call: Call) -> Result:
    value = call.value(0)
    return value if value.dtype is call.dtype else moved_behind("cast", value, dtype=call.dtype)


def _same(call: Call) -> Result:
    return call.value(0)


def _scalar(call: Call) -> Result:
    number = call.raw(0)
    assert isinstance(number, (bool, int, float))
    return constant(number, dtype=call.dtype)


def _full(call: Call) -> Result:
    number = call.raw(1)
    if not isinstance(number, (bool, int, float)) or math.prod(call.shape) != 1:
        raise Mismatch("No template knows a tensor filled with one number.")
    return constant(number, dtype=call.dtype)


def _sum(call: Call) -> Result:
    value = call.value(0)
    source = value if value.dtype is call.dtype else make("cast", value, dtype=call.dtype)
    return reduced("sum", source, call.axes(1, len(value.shape)), bool(call.raw(2, "keepdim", False)))


def _mean(call: Call) -> Result:
    value = call.value(0)
    return mean(value, call.axes(1, len(value.shape)), bool(call.raw(2, "keepdim", False)))


def mean(value: Value, axes: Sequence[int], kept: bool) -> Value:
    """The mean over axes: a sum divided by how many elements it covers."""
    total = reduced("sum", value, axes, kept)
    return make("div", total, _count(value, axes), label="mean")


def _count(value: Value, axes: Sequence[int], less: int = 0) -> Value:
    """How many elements a reduction of the value covers; kernels know it at run time."""
    return Value("count", (value,), (), torch.float32, "", {"axes": tuple(axes), "less": less})


def _extreme(kind: str) -> Callable[[Call], Result]:
    def handler(call: Call) -> Result:
        value = call.value(0)
        return reduced(kind, value, call.axes(1, len(value.shape)), bool(call.raw(2, "keepdim", False)))

    return handler


def _extreme_with_place(kind: str) -> Callable[[Call], Result]:
    def handler(call: Call) -> Result:
        value = call.value(0)
        return (reduced(kind, value, call.axes(1, len(value.shape)), bool(call.raw(2, "keepdim", False))),)

    return handler


def _norm(call: Call) -> Result:
    value, order = call.value(0), call.raw(1, "ord", 2)
    axes, kept = call.axes(2, len(value.shape)), bool(call.raw(3, "keepdim", False))
    if order == 2:
        return make("sqrt", reduced("sum", make("square", value), axes, kept))
    if order == 1:
        return reduced("sum", make("abs", value), axes, kept)
    if order in (math.inf, -math.inf):
        return reduced("max" if order == math.inf else "min", make("abs", value), axes, kept)
    raise Mismatch(f"No template knows a norm of order {order}.")


def _variance(value: Value, axes: Sequence[int], kept: bool, less: int) -> Value:
    centred = make("sub", value, mean(value, axes, True))
    return make("div", reduced("sum", make("square", centred), axes, kept), _count(value, axes, less))


def _var(call: Call) -> Result:
    value = call.value(0)
    less = call.raw(2, "correction", 1)
    if not isinstance(less, (int, float)) or int(less) != less:
        raise Mismatch("No template knows a variance with that correction.")
    return _variance(value, call.axes(1, len(value.shape)), bool(call.raw(3, "keepdim", False)), int(less))


def _layer_norm(call: Call) -> Result:
    value, sizes = call.value(0), call.raw(1)
    assert isinstance(sizes, (list, tuple))
    axes = tuple(range(len(value.shape) - len(sizes), len(value.shape)))
    average = mean(value, axes, True)
    centred = make("sub", value, average, label="centred")
    variance = make("div", reduced("sum", make("square", centred), axes, True), _count(value, axes), label="variance")
    inverse = make("rsqrt", make("add", variance, call.value(4)), label="inverse")
    result = make("mul", centred, inverse)
    if call.raw(2) is not None:
        result = make("mul", result, call.value(2))
    if call.raw(3) is not None:
        result = make("add", result, call.value(3))
    return result, average, inverse


def _softmax(op: str) -> Callable[[Call], Result]:
    def handler(call: Call) -> Result:
        value, axis = call.value(0), call.raw(1)
        assert isinstance(axis, int)
        rank = len(value.shape)
        if value.dtype is not call.dtype:
            value = make("cast", value, dtype=call.dtype)
        if axis % rank != rank - 1:
            return whole_softmax(op, value, axis % rank)
        if value.op == "reshape" and value.inputs[0].shape[-1] == value.shape[-1]:
            inner = value.inputs[0]
            return reshape(Value(op, (inner,), inner.shape, inner.dtype), value.shape)
        return Value(op, (value,), value.shape, value.dtype)

    return handler


def whole_softmax(op: str, value: Value, axis: int, label: str = "") -> Value:
    """A softmax or log_softmax spelled out: largest, exponentials, sum."""
    largest = reduced("max", value, [axis], True, label="largest")
    shifted = make("sub", value, largest, label="shifted")
    exponentials = make("exp", shifted, label="exponentials")
    total = reduced("sum", exponentials, [axis], True, label="total")
    if op == "softmax":
        return make("div", exponentials, total, label=label)
    return make("sub", shifted, make("log", total), label=label)


HANDLERS: dict[str, Callable[[Call], Result]] = {
    "add": _scaled("add"),
    "sub": _scaled("sub"),
    "rsub": _rsub,
    "div": _div,
    "pow": _pow,
    "clamp": _clamp,
    "clamp_min": _clamp,
    "hardtanh": _hardtanh,
    "gelu": _gelu,
    "leaky_relu": _leaky_relu,
    "elu": _elu,
    "_to_copy": _cast,
    "clone": _same,
    "alias": _same,
    "detach": _same,
    "lift_fresh_copy": _same,
    "scalar_tensor": _scalar,
    "full": _full,
    "sum": _sum,
    "mean": _mean,
    "amax": _extreme("max"),
    "amin": _extreme("min"),
    "max.default": _extreme("max"),
    "min.default": _extreme("min"),
    "max.dim": _extreme_with_place("max"),
    "min.dim": _extreme_with_place("min"),
    "linalg_vector_norm": _norm,
    "var": _var,
    "native_layer_norm": _layer_norm,
    "_softmax": _softmax("softmax"),
    "_log_softmax": _softmax("log_softmax"),
}
HANDLERS |= view_operations.HANDLERS | heavy_operations.HANDLERS
HANDLERS |= {
    name: _pointwise(op, inputs)
    for name, op, inputs in (
        ("mul", "mul", 2),
        ("exp", "exp", 1),
        ("exp2", "exp2", 1),
        ("log", "log", 1),
        ("log2", "log2", 1),
        ("log1p", "log1p", 1),
        ("expm1", "expm1", 1),
        ("sqrt", "sqrt", 1),
        ("rsqrt", "rsqrt", 1),
        ("abs", "abs", 1),
        ("neg", "neg", 1),
        ("reciprocal", "reciprocal", 1),
        ("sigmoid", "sigmoid", 1),
        ("tanh", "tanh", 1),
        ("erf", "erf", 1),
        ("sin", "sin", 1),
        ("cos", "cos", 1),
        ("floor", "floor", 1),
        ("ceil", "ceil", 1),
        ("sign", "sign", 1),
        ("relu", "relu", 1),
        ("isnan", "isnan", 1),
        ("isinf", "isinf", 1),
        ("logical_not", "not", 1),
        ("bitwise_not", "not", 1),
        ("maximum", "maximum", 2),
        ("minimum", "minimum", 2),
        ("logical_and", "and", 2),
        ("logical_or", "or", 2),
        ("bitwise_and", "and", 2),
        ("bitwise_or", "or", 2),
        ("lt", "lt", 2),
        ("le", "le", 2),
        ("gt", "gt", 2),
        ("ge", "ge", 2),
        ("eq", "eq", 2),
        ("ne", "ne", 2),
        ("where", "where", 3),
    )
}
