"""Lays the values of a graph over rows and columns.

The largest shape of a graph is cut in two: its last axes are the columns, all others the rows. Every
value then covers rows, columns, both or neither, and inputs know how they are addressed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engine.lowering.templates.graph import Graph, Mismatch, Shape, Value
from engine.lowering.templates.pointwise import POINTWISE

Axes = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """What a value covers; a value that covers neither is one number."""

    rows: bool
    columns: bool


@dataclass(frozen=True, slots=True)
class RowIndex:
    """Which row of an input belongs to a row of the domain: (row // inner) % period; None leaves a step out."""

    inner: str | None = None
    period: str | None = None


@dataclass(frozen=True, slots=True)
class Domain:
    """Rows and columns of a graph, and how each value lies over them.

    `sizes` has for each axis of `shape` the input and its axis that have this size at run time.
    """

    shape: Shape
    trailing: int
    axes: dict[Value, Axes]
    sizes: tuple[tuple[Value, int], ...]

    @property
    def rows(self) -> int:
        """Number of rows at the large form."""
        return math.prod(self.shape[: len(self.shape) - self.trailing])

    @property
    def columns(self) -> int:
        """Number of columns at the large form."""
        return math.prod(self.shape[len(self.shape) - self.trailing :])

    def span(self, value: Value) -> Span:
        """What the value covers.

        Raises:
            Mismatch: it covers some of the column axes only.
        """
        cut = len(self.shape) - self.trailing
        covered = {axis for axis in self.axes.get(value, ()) if axis is not None}
        wide = {axis for axis in range(len(self.shape)) if self.shape[axis] > 1}
        columns = {axis for axis in covered if axis >= cut}
        if columns and columns != {axis for axis in wide if axis >= cut}:
            raise Mismatch("An operand covers only some of the axes that one row consists of.")
        return Span(any(axis < cut for axis in covered), bool(columns))

    def counted(self, count: Value) -> str:
        """What a `count` counts: `rows`, `columns`, both, or `1`, less its correction.

        Raises:
            Mismatch: it covers some of the axes of a row or of all rows only.
        """
        source = count.inputs[0]
        covered = {self.axes[source][place] for place in count.numbers("axes")} - {None}
        cut = len(self.shape) - self.trailing
        wide = [axis for axis, size in enumerate(self.shape) if size > 1]
        parts = {"rows": {axis for axis in wide if axis < cut}, "columns": {axis for axis in wide if axis >= cut}}
        found = [name for name, axes in parts.items() if axes and axes <= covered]
        if set().union(*(parts[name] for name in found)) != covered:
            raise Mismatch("A mean covers some of the axes only.")
        text = " * ".join(found) or "1"
        less = count.settings["less"]
        return f"({text} - {less})" if less else f"({text})" if len(found) > 1 else text

    def row_index(self, value: Value) -> RowIndex | None:
        """How an input that covers rows is addressed by the row, None if it covers none.

        The texts name axes as `{0}`, `{1}`, to be filled with their sizes.

        Raises:
            Mismatch: the covered axes are not next to each other.
        """
        cut = len(self.shape) - self.trailing
        covered = sorted(axis for axis in self.axes[value] if axis is not None and axis < cut)
        wide = [axis for axis in range(cut) if self.shape[axis] > 1]
        if not covered:
            return None
        first, last = wide.index(covered[0]), wide.index(covered[-1])
        if wide[first : last + 1] != covered:
            raise Mismatch("An operand is broadcast along an axis between the ones it covers.")
        inner = " * ".join(f"{{{axis}}}" for axis in wide[last + 1 :]) or None
        period = " * ".join(f"{{{axis}}}" for axis in covered) if first > 0 else None
        return RowIndex(inner, period)


def lay_out(graph: Graph, shape: Shape, trailing: int, sizes_known: bool = False) -> Domain:
    """Finds for each value which axes of `shape` it covers.

    With `sizes_known` the caller knows the sizes of the axes, and inputs need not tell them all.

    Raises:
        Mismatch: an operation moves elements between axes, or the shapes do not line up.
    """
    values = graph.values()
    axes: dict[Value, Axes] = {}
    for value in values:
        if len(value.shape) == len(shape) and value.shape:
            axes[value] = _aligned(value.shape, shape, tuple(range(len(shape))))
    for _ in range(len(values)):
        before = len(axes)
        for value in values:
            _forward(value, axes)
        for value in reversed(values):
            _backward(value, axes)
        if len(axes) == before:
            break
    for value in values:
        if value.shape and value not in axes:
            axes[value] = _aligned(value.shape, shape, tuple(range(len(shape))))
            _forward(value, axes)
    for value in values:
        _check(value, axes, shape)
    return Domain(shape, trailing, axes, () if sizes_known else _sizes(values, axes, shape))


def _aligned(shape: Shape, other: Shape, other_axes: Axes) -> Axes:
    """The axes that a shape covers when it is broadcast against another one."""
    offset = len(other) - len(shape)
    result: list[int | None] = []
    for place, size in enumerate(shape):
        axis = other_axes[place + offset] if place + offset >= 0 else None
        if size != 1 and (place + offset < 0 or other[place + offset] != size):
            raise Mismatch("The shapes in the graph do not line up.")
        result.append(None if size == 1 else axis)
    return tuple(result)


def _forward(value: Value, axes: dict[Value, Axes]) -> None:
    if value in axes or not value.shape:
        return
    sources = [source for source in value.inputs if source in axes]
    if not sources:
        return
    if value.op in POINTWISE:
        merged: list[int | None] = [None] * len(value.shape)
        for source in sources:
            offset = len(value.shape) - len(source.shape)
            for place, axis in enumerate(axes[source]):
                if axis is not None:
                    merged[place + offset] = axis
        if all(axis is not None or size == 1 for axis, size in zip(merged, value.shape, strict=True)):
            axes[value] = tuple(merged)
    elif value.op == "reduce":
        removed, kept = value.numbers("axes"), value.settings["kept"]
        source_axes = axes[value.inputs[0]]
        axes[value] = tuple(
            None if place in removed else axis for place, axis in enumerate(source_axes) if kept or place not in removed
        )
    elif value.op == "reshape":
        axes[value] = _squeezed(value.inputs[0].shape, axes[value.inputs[0]], value.shape)
    elif value.op == "pick" and value.inputs[0] in axes:
        axes[value] = (*axes[value.inputs[0]][:-1], None)


def _backward(value: Value, axes: dict[Value, Axes]) -> None:
    if value not in axes:
        return
    for source in value.inputs:
        if source in axes or not source.shape:
            continue
        if value.op in POINTWISE:
            axes[source] = _aligned(source.shape, value.shape, axes[value])
        elif value.op == "reshape":
            axes[source] = _squeezed(value.shape, axes[value], source.shape)
        elif value.op == "pick" and source is value.inputs[1]:
            axes[source] = axes[value]


def _squeezed(shape: Shape, shape_axes: Axes, wanted: Shape) -> Axes:
    """The axes after adding or removing axes of size one.

    Raises:
        Mismatch: more than that changes.
    """
    left = [(size, axis) for size, axis in zip(shape, shape_axes, strict=True) if size != 1]
    if [size for size, _ in left] != [size for size in wanted if size != 1]:
        raise Mismatch("An intermediate result is reshaped.")
    covered = iter(left)
    return tuple(None if size == 1 else next(covered)[1] for size in wanted)


def _check(value: Value, axes: dict[Value, Axes], shape: Shape) -> None:
    for size, axis in zip(value.shape, axes.get(value, ()), strict=False):
        if (axis is None) != (size == 1) or (axis is not None and shape[axis] != size):
            raise Mismatch("The shapes in the graph do not line up.")
    if value.op not in POINTWISE:
        return
    for source in value.inputs:
        if source.shape and axes[source] != _aligned(source.shape, value.shape, axes[value]):
            raise Mismatch("An intermediate result is used along another axis than it was computed for.")


def _sizes(values: Sequence[Value], axes: dict[Value, Axes], shape: Shape) -> tuple[tuple[Value, int], ...]:
    found: dict[int, tuple[Value, int]] = {}
    inputs = [value for value in values if value.op == "input"]
    for value in sorted(inputs, key=lambda value: -math.prod(value.shape)):
        for place, axis in enumerate(axes.get(value, ())):
            if axis is not None:
                found.setdefault(axis, (value, place))
            elif len(value.shape) == len(shape) and shape[place] == 1:
                found.setdefault(place, (value, place))
    if len(found) < len(shape):
        raise Mismatch("A size of the result is no size of an input.")
    return tuple(found[axis] for axis in range(len(shape)))
