"""What each aten operation means in the graph that templates match."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from engine.lowering.templates.graph import (
    FLOATS,
    Mismatch,
    Shape,
    Value,
    constant,
    make,
    moved_behind,
    reduced,
    reshape,
)

if TYPE_CHECKING:
    from engine.lowering.templates.reading import Reader

Result = Value | tuple[Value, ...]


class Call:
    """One call of the trace, with its counterpart in the small form."""

    def __init__(self, reader: Reader, node: torch.fx.Node, small: torch.fx.Node) -> None:
        self.reader = reader
        self._node, self._small = node, small
        result = node.meta.get("val")
        self.shape: Shape = tuple(result.shape) if isinstance(result, torch.Tensor) else ()
        other = small.meta.get("val")
        self.small_shape: Shape = tuple(other.shape) if isinstance(other, torch.Tensor) else ()
        self.results: list[Shape] = [tuple(part.shape) for part in result] if isinstance(result, (tuple, list)) else []
        self.dtype: torch.dtype = result.dtype if isinstance(result, torch.Tensor) else torch.float32

    def raw(self, index: int, name: str = "", default: object = None) -> object:
        """An argument as the large form has it."""
        return _argument(self._node, index, name, default)

    def pair(self, index: int, name: str = "", default: object = None) -> tuple[object, object]:
        """An argument as each form has it."""
        return _argument(self._node, index, name, default), _argument(self._small, index, name, default)

    def value(self, index: int, name: str = "") -> Value:
        """An argument as a value; numbers become constants."""
        return self.reader.number(*self.pair(index, name))

    def axes(self, index: int, rank: int) -> tuple[int, ...]:
        """A list of axes, all of them if it is empty, counted from 0."""
        axes = self.raw(index)
        if isinstance(axes, int):
            axes = [axes]
        assert axes is None or isinstance(axes, (list, tuple))
        return tuple(sorted(int(axis) % max(rank, 1) for axis in axes)) if axes else tuple(range(rank))

    def whole(self, large: object, small: object, axis: int | None = None) -> str:
        """Host text of a whole number."""
        assert isinstance(large, int) and isinstance(small, int)
        return self.reader.sizes.whole(large, small, axis, literal=True)


def _argument(node: torch.fx.Node, index: int, name: str, default: object) -> object:
    if index < len(node.args):
        return node.args[index]
    return node.kwargs.get(name, default)


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


def _gather(call: Call) -> Result:
    value, axis, places = call.value(0), call.raw(1), call.value(2)
    assert isinstance(axis, int)
    rank = len(value.shape)
    if axis % rank != rank - 1 or places.shape != (*value.shape[:-1], 1):
        raise Mismatch("No template knows this gather.")
    return Value("pick", (value, places), places.shape, value.dtype)


def _view(call: Call) -> Result:
    value = call.value(0)
    if value.op != "input":
        return reshape(value, call.shape)
    if value.shape == call.shape:
        return value
    sizes = call.reader.shape_text(call.shape, call.small_shape)
    return call.reader.host(
        value,
        f"{value.text('text')}.reshape({', '.join(sizes)})",
        call.shape,
        "dense" if value.text("layout") == "dense" else "any",
    )


def _expand(call: Call) -> Result:
    value = call.value(0)
    if value.shape == call.shape:
        return value
    if math.prod(value.shape) == math.prod(call.shape):
        return _view(call)
    raise Mismatch("No template knows an expanded tensor outside pointwise operations.")


def _permute(call: Call) -> Result:
    value, order = call.value(0), call.raw(1)
    assert isinstance(order, (list, tuple))
    rank = len(value.shape)
    numbers = [int(axis) % rank for axis in order]
    moved = [axis for axis, other in enumerate(numbers) if axis != other]
    if not moved:
        return value
    if value.op != "input":
        raise Mismatch("No template knows a transposed intermediate result.")
    text, layout = value.text("text"), "any"
    if moved == [rank - 2, rank - 1]:
        layout = {"dense": "transposed", "transposed": "dense"}.get(value.text("layout"), "any")
        text = text.removesuffix(".mT") if text.endswith(".mT") else f"{text}.mT"
    elif len(moved) == 2:
        text = f"{text}.transpose({moved[0]}, {moved[1]})"
    else:
        text = f"{text}.permute({', '.join(map(str, numbers))})"
    return call.reader.host(value, text, call.shape, layout)


def _narrow(call: Call, value: Value, axis: int, start: str, length: str, shape: Shape) -> Value:
    if value.op != "input":
        raise Mismatch("No template knows a slice of an intermediate result.")
    text = f"{value.text('text')}.narrow({axis}, {start}, {length})"
    layout = "any"
    if value.text("layout") == "dense":
        layout = "dense" if axis == 0 else "rows" if axis == len(shape) - 1 else "any"
    return call.reader.host(value, text, shape, layout)


def _slice(call: Call) -> Result:
    value, axis = call.value(0), call.raw(1, "dim", 0)
    assert isinstance(axis, int)
    axis %= len(value.shape)
    if call.raw(4, "step", 1) != 1:
        raise Mismatch("No template knows a slice with a step.")
    if value.shape == call.shape:
        return value
    starts = [start or 0 for start in call.pair(2, "start")]
    start = call.whole(starts[0], starts[1])
    length = call.whole(call.shape[axis], call.small_shape[axis], axis)
    return _narrow(call, value, axis, start, length, call.shape)


def _split(call: Call) -> Result:
    value, axis = call.value(0), call.raw(2, "dim", 0)
    large, small = call.pair(1)
    assert isinstance(axis, int) and isinstance(large, (list, tuple)) and isinstance(small, (list, tuple))
    axis %= len(value.shape)
    parts: list[Value] = []
    for index, (size, other) in enumerate(zip(large, small, strict=True)):
        start = call.whole(sum(large[:index]), sum(small[:index]))
        shape = (*value.shape[:axis], size, *value.shape[axis + 1 :])
        parts.append(_narrow(call, value, axis, start, call.whole(size, other), shape))
    return tuple(parts)


def _select(call: Call) -> Result:
    value, axis, index = call.value(0), call.raw(1), call.raw(2)
    assert isinstance(axis, int) and isinstance(index, int)
    if value.op != "input":
        raise Mismatch("No template knows a slice of an intermediate result.")
    return call.reader.host(value, f"{value.text('text')}.select({axis}, {index})", call.shape, "any")


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
    "gather": _gather,
    "view": _view,
    "_unsafe_view": _view,
    "reshape": _view,
    "unsqueeze": _view,
    "squeeze": _view,
    "expand": _expand,
    "permute": _permute,
    "slice": _slice,
    "split_with_sizes": _split,
    "select": _select,
    "mm": _mm,
    "mv": _matrix_vector,
    "bmm": _matmul,
    "addmm": _addmm,
    "scaled_dot_product_attention": _attention,
    "max_pool2d_with_indices": _pool("max"),
    "avg_pool2d": _pool("avg"),
}
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
