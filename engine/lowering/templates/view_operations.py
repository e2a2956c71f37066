"""What aten's views, slices and gathers mean: host text for inputs, `reshape` for computed values."""

from __future__ import annotations

import math
from collections.abc import Callable

from engine.lowering.templates.calls import Call, Result
from engine.lowering.templates.graph import Mismatch, Shape, Value, reshape


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


HANDLERS: dict[str, Callable[[Call], Result]] = {
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
}
