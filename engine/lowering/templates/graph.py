"""The small graph that templates match: values, each made by one operation from others.

It is coarser than aten: conversions between views are one operation (`reshape`), a softmax stays whole,
and every constant carries the text with which host code can compute it from the sizes of the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import torch

Shape = tuple[int, ...]
Setting = object

FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
HALVES = frozenset({torch.float16, torch.bfloat16})


class Mismatch(Exception):
    """A template does not fit a graph; the message is one sentence for people."""


class Unrelated(Mismatch):
    """A graph is of another family altogether, which is no news for people."""


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """One tensor (or constant) of the graph; compared by identity.

    Operations: `input` (settings `text`: host expression; `layout`: `dense`, `rows` for dense rows that
    lie apart, `transposed` where the last two axes of a dense tensor are swapped, or `any`), `constant`
    (settings `number`, `text`), `count` (of what a mean covers), `reduce` (settings `kind`: sum, max, min;
    `axes`; `kept`), `reshape`, `softmax`, `log_softmax`, `pick`, `matmul`, `attention`, `pool`, and the
    pointwise operations of `pointwise.py`. `label` is a name for people, "" where none is known.
    """

    op: str
    inputs: tuple[Value, ...]
    shape: Shape
    dtype: torch.dtype
    label: str = ""
    settings: Mapping[str, Setting] = field(default_factory=lambda: MappingProxyType({}))

    def text(self, setting: str) -> str:
        """The setting of that name, which must be a text."""
        value = self.settings[setting]
        assert isinstance(value, str)
        return value

    def numbers(self, setting: str) -> tuple[int, ...]:
        """The setting of that name, which must be a tuple of whole numbers."""
        value = self.settings[setting]
        assert isinstance(value, tuple)
        return value

    @property
    def constant(self) -> float | int | bool | None:
        """The number this value always is, or None."""
        number = self.settings.get("number") if self.op == "constant" else None
        assert number is None or isinstance(number, (bool, int, float))
        return number


@dataclass(frozen=True, slots=True)
class Output:
    """One returned tensor: its value, and the host text of each of its sizes (None where not known)."""

    value: Value
    shape: Shape
    sizes: tuple[str, ...] | None
    dtype: torch.dtype
    name: str


@dataclass(frozen=True, slots=True)
class Graph:
    """A task's reference at its large form.

    `returns` is `tensor`, `tuple` or `list`; `arguments` maps the arguments of forward to their types,
    `renamed` those that go by another name inside it to their own names.
    """

    outputs: tuple[Output, ...]
    returns: str
    arguments: Mapping[str, str]
    renamed: Mapping[str, str] = field(default_factory=dict)

    def values(self) -> list[Value]:
        """Every value that an output needs, each after its inputs."""
        return ordered(output.value for output in self.outputs)

    def without_duplicates(self) -> Graph:
        """The same graph with equal values made once."""
        known: dict[object, Value] = {}

        def unique(value: Value, inputs: tuple[Value, ...]) -> Value:
            settings = tuple((name, known.get(s, s)) for name, s in value.settings.items())
            key = (value.op, tuple(map(id, inputs)), value.shape, value.dtype, settings)
            return known.setdefault(key, replace_inputs(value, inputs))

        return self.rewritten(unique)

    def rewritten(self, rule: Callable[[Value, tuple[Value, ...]], Value]) -> Graph:
        """The graph in which each value is what `rule` makes of it and its rewritten inputs."""
        new: dict[Value, Value] = {}
        for value in self.values():
            new[value] = rule(value, tuple(new[source] for source in value.inputs))
        outputs = tuple(replace(output, value=new[output.value]) for output in self.outputs)
        return replace(self, outputs=outputs)

    def users(self) -> dict[Value, list[Value]]:
        """For each value the values made from it."""
        users: dict[Value, list[Value]] = {value: [] for value in self.values()}
        for value in users:
            for source in value.inputs:
                users[source].append(value)
        return users


def ordered(wanted: Iterator[Value] | Sequence[Value]) -> list[Value]:
    """The wanted values and all they depend on, inputs first, in a stable order."""
    done: dict[Value, None] = {}
    stack: list[tuple[Value, bool]] = [(value, False) for value in reversed(list(wanted))]
    while stack:
        value, expanded = stack.pop()
        if value in done:
            continue
        if expanded:
            done[value] = None
            continue
        stack.append((value, True))
        stack.extend((source, False) for source in reversed(value.inputs) if source not in done)
    return list(done)


def constant(number: float | int | bool, text: str = "", dtype: torch.dtype | None = None) -> Value:
    """A constant; `text` computes it on the host where it is no literal."""
    if dtype is None:
        dtype = torch.bool if isinstance(number, bool) else torch.int64 if isinstance(number, int) else torch.float32
    return Value("constant", (), (), dtype, settings={"number": number, "text": text})


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The shape that all shapes are broadcast to."""
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(next((size for size in sizes if size != 1), 1) for sizes in zip(*padded, strict=True))


def make(op: str, *inputs: Value, dtype: torch.dtype | None = None, label: str = "") -> Value:
    """A pointwise value over broadcast inputs; its dtype is that of the first input that is no constant."""
    tensors = [value for value in inputs if value.op != "constant"] or list(inputs)
    shape = broadcast([value.shape for value in inputs])
    return Value(op, inputs, shape, dtype or tensors[0].dtype, label)


def reduced(kind: str, source: Value, axes: Sequence[int], kept: bool, label: str = "") -> Value:
    """The sum, max or min of a value over axes (counted from 0)."""
    if kept:
        shape = tuple(1 if axis in axes else size for axis, size in enumerate(source.shape))
    else:
        shape = tuple(size for axis, size in enumerate(source.shape) if axis not in axes)
    settings = {"kind": kind, "axes": tuple(sorted(axes)), "kept": kept}
    return Value("reduce", (source,), shape, source.dtype, label, settings)


def reshape(value: Value, shape: Shape) -> Value:
    """The same elements in another shape."""
    if value.op == "reshape":
        value = value.inputs[0]
    return value if value.shape == shape else Value("reshape", (value,), shape, value.dtype, value.label)


def moved_behind(op: str, *inputs: Value, dtype: torch.dtype | None = None) -> Value:
    """A pointwise value, with a reshape of its only large operand moved behind it where possible."""
    shape = broadcast([value.shape for value in inputs])
    moved = [value for value in inputs if value.op == "reshape"]
    if len(moved) == 1 and moved[0].shape == shape and shape:
        base = moved[0].inputs[0]
        others = [value for value in inputs if value is not moved[0]]
        same_last = base.shape and base.shape[-1] == shape[-1]
        if same_last and all(math.prod(value.shape) == 1 or value.shape == shape[-1:] for value in others):
            inner = make(op, *(base if value is moved[0] else value for value in inputs), dtype=dtype)
            return reshape(inner, shape)
    if len(moved) > 1 and len({(value.shape, value.inputs[0].shape) for value in moved}) == 1:
        others = [value for value in inputs if value not in moved]
        if all(math.prod(value.shape) == 1 for value in others) and moved[0].shape == shape:
            inner = make(op, *(v.inputs[0] if v in moved else v for v in inputs), dtype=dtype)
            return reshape(inner, shape)
    return make(op, *inputs, dtype=dtype)


def replace_inputs(value: Value, inputs: tuple[Value, ...]) -> Value:
    """The same operation on other inputs."""
    if inputs == value.inputs:
        return value
    return Value(value.op, inputs, value.shape, value.dtype, value.label, value.settings)
