"""Reads a traced reference into the graph that templates match.

Views of inputs become host text (free of cost there); views of computed values become `reshape`, moved
behind pointwise operations where that changes nothing. What has no counterpart raises `Mismatch`.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch

from engine.lowering.templates import operations
from engine.lowering.templates.calls import Call
from engine.lowering.templates.graph import Graph, Mismatch, Output, Shape, Value, constant
from engine.lowering.templates.sizes import Sizes
from engine.lowering.templates.tracing import Trace, labels, small_form, trace

Partial = tuple[Value, ...]


def read(source: str, overrides: Mapping[str, object], dtype: str | None = None) -> Graph:
    """Traces the task's large form (and its small one, where it has one) and reads the graph.

    Raises:
        Mismatch: the reference cannot be traced or does something no template knows.
    """
    large = trace(source, overrides, dtype)
    constants = small_form(source)
    small: Trace | None = None
    if constants is not None:
        small = trace(source, {**overrides, **constants}, dtype)
        if [node.target for node in small.nodes] != [node.target for node in large.nodes]:
            raise Mismatch("The reference does something else at its small form than at its large one.")
    return Reader(source, large, small).graph()


class Reader:
    """Turns the nodes of a trace into values, one by one."""

    def __init__(self, source: str, large: Trace, small: Trace | None) -> None:
        self._trace = large
        self._nodes = list(zip(large.nodes, (small or large).nodes, strict=True))
        self.sizes = Sizes(_shapes(large), None if small is None else _shapes(small), large.attributes)
        self._labels = labels(source, large.nodes)
        self._values: dict[torch.fx.Node, Value | Partial] = {}

    def graph(self) -> Graph:
        """Reads every node.

        Raises:
            Mismatch: at the first node that has no counterpart.
        """
        outputs: tuple[Output, ...] = ()
        for node, small in self._nodes:
            if node.op == "placeholder" and not isinstance(node.meta.get("val"), torch.Tensor):
                continue
            if node.op == "placeholder":
                self._values[node] = self._input(node)
            elif node.op == "output":
                outputs = self._outputs(node, small)
            elif "_assert" not in str(node.target):
                self._values[node] = self._call(node, small)
        trace = self._trace
        return Graph(outputs, trace.returns, trace.arguments, trace.renamed).without_duplicates()

    def value(self, node: object) -> Value:
        """The value of a node, or a constant for a plain number."""
        if isinstance(node, torch.fx.Node):
            value = self._values[node]
            if isinstance(value, tuple):
                return value[0]
            return value
        if isinstance(node, (bool, int, float)):
            return constant(node)
        raise Mismatch(f"An operand of type {type(node).__name__} is not known.")

    def number(self, large: object, small: object) -> Value:
        """A number of the trace as a constant that is right in both forms."""
        if not isinstance(large, (bool, int, float)) or not isinstance(small, (bool, int, float)):
            return self.value(large)
        if isinstance(large, bool):
            return constant(large)
        return constant(large, self.sizes.number(large, small))

    def host(self, base: Value, text: str, shape: Shape, layout: str) -> Value:
        """A view of an input, made on the host."""
        settings = MappingProxyType({"text": text, "layout": layout})
        return Value("input", (), shape, base.dtype, base.label, settings)

    def _input(self, node: torch.fx.Node) -> Value:
        text = self._trace.texts.get(node.name)
        tensor = node.meta.get("val")
        if text is None or not isinstance(tensor, torch.Tensor):
            raise Mismatch("The reference uses a tensor constant that is neither an input, a parameter nor a buffer.")
        label = text.rsplit(".", 1)[-1]
        settings = MappingProxyType({"text": text, "layout": "dense"})
        return Value("input", (), tuple(tensor.shape), tensor.dtype, label, settings)

    def _call(self, node: torch.fx.Node, small: torch.fx.Node) -> Value | Partial:
        if node.target is operator.getitem:
            parts = self._values[_node(node.args[0])]
            index = node.args[1]
            assert isinstance(index, int)
            if not isinstance(parts, tuple) or index >= len(parts):
                raise Mismatch("The reference uses a second result (such as indices) that no template computes.")
            return self._named(parts[index], node.name)
        name = str(node.target).removeprefix("aten.")
        handler = operations.HANDLERS.get(name) or operations.HANDLERS.get(name.rsplit(".", 1)[0])
        if handler is None:
            raise Mismatch(f"No template knows the operation {name.rsplit('.', 1)[0]}.")
        call = Call(self, node, small)
        result = handler(call)
        if isinstance(result, tuple):
            return result
        tensor = node.meta["val"]
        if tuple(tensor.shape) != result.shape:
            raise Mismatch(f"The operation {name} is used in a form that no template knows.")
        return self._named(result, node.name)

    def _named(self, value: Value, node_name: str) -> Value:
        label = self._labels.get(node_name)
        if not label or (value.op == "input" and value.settings["text"] in self._trace.arguments):
            return value
        if value.op == "reshape":
            return Value("reshape", (self._named(value.inputs[0], node_name),), value.shape, value.dtype, label)
        return Value(value.op, value.inputs, value.shape, value.dtype, label, value.settings)

    def _outputs(self, node: torch.fx.Node, small: torch.fx.Node) -> tuple[Output, ...]:
        results, small_results = _sequence(node.args[0]), _sequence(small.args[0])
        outputs: list[Output] = []
        for result, other in zip(results, small_results, strict=True):
            value = self.value(result)
            if value.op in ("input", "constant"):
                raise Mismatch("The reference returns an input or a constant.")
            shapes = tuple(_node(result).meta["val"].shape), tuple(_node(other).meta["val"].shape)
            try:
                sizes = self.shape_text(*shapes)
            except Mismatch:
                sizes = None
            dtype = _node(result).meta["val"].dtype
            bare = value.inputs[0] if value.op == "reshape" else value
            default = "output" if len(results) == 1 else f"output_{len(outputs) + 1}"
            outputs.append(Output(bare, value.shape, sizes, dtype, bare.label or default))
        return tuple(outputs)

    def shape_text(self, large: Shape, small: Shape) -> tuple[str, ...]:
        """Host text for each size of a shape."""
        pairs = enumerate(zip(large, small, strict=True))
        return tuple(self.sizes.whole(size, other, axis, literal=size == 1) for axis, (size, other) in pairs)


def _shapes(trace: Trace) -> dict[str, Shape]:
    """The shapes of inputs, then of parameters and buffers, by host text."""
    held = {
        trace.texts[node.name]: tuple(node.meta["val"].shape)
        for node in trace.nodes
        if isinstance(node.meta.get("val"), torch.Tensor) and node.name in trace.texts
    }
    return {**trace.sizes, **held}


def _node(argument: object) -> torch.fx.Node:
    if not isinstance(argument, torch.fx.Node):
        raise Mismatch("The reference returns something that is no tensor.")
    return argument


def _sequence(argument: object) -> Sequence[object]:
    assert isinstance(argument, (tuple, list))
    return argument
