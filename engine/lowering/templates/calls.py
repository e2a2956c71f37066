"""One call of a trace, as the handlers of operations see it: both forms side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from engine.lowering.templates.graph import Shape, Value

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
