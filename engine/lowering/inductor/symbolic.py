"""A task's model and inputs with symbolic sizes: which sizes may vary, and what they are called.

The task's module is built twice without memory, at its own sizes and at a second set; a size that differs between the
two is written in terms of the constants that were changed. Nothing here depends on Inductor.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from engine.lowering.casting import cast
from engine.lowering.inductor.capture import DEVICE, SymbolicSizes

Pair = tuple[int, int]

_ASSUMED = 16
"""Sizes are assumed to be at least this large where both forms are."""


class NotSymbolic(Exception):
    """The task cannot be written for sizes that vary; the text is one sentence."""


class SizesFixed(NotSymbolic):
    """Tracing or lowering turned sizes that should vary into numbers."""

    def __init__(self, values: Mapping[str, str]) -> None:
        shown = ", ".join(f"{name} = {value}" for name, value in values.items())
        super().__init__(f"The reference is lowered for fixed sizes only ({shown}).")
        self.names = frozenset(values)


@dataclass(frozen=True, slots=True)
class TensorInput:
    """A tensor the lowered code needs: an argument of forward, a parameter or a buffer.

    `path` is the Python expression that gives it inside `forward` ("x", "self.norm.weight").
    """

    path: str
    sizes: tuple[Any, ...]
    is_attribute: bool


@dataclass(frozen=True, slots=True)
class SymbolicTask:
    """Everything needed to trace a task's forward: a flat function, its arguments, and what they stand for.

    `arguments` are the sizes, then the tensors; `inputs` describe the tensors in the same order. `structure` restores
    the nesting of the outputs from the flat list, after a trace.
    """

    sizes: SymbolicSizes
    size_names: tuple[str, ...]
    second_values: Mapping[str, int]
    arguments: tuple[Any, ...]
    inputs: tuple[TensorInput, ...]
    forward_arguments: tuple[str, ...]
    function: Callable[..., Sequence[Any]]
    output_structure: list[Any]
    varies_by_declaration: bool


@dataclass(frozen=True, slots=True)
class _Built:
    namespace: dict[str, Any]
    model: torch.nn.Module
    inputs: list[Any]


def symbolic_task(
    source: str, overrides: Mapping[str, Any], fixed: frozenset[str] = frozenset(), dtype: str | None = None
) -> SymbolicTask:
    """Builds the task with symbolic sizes.

    Args:
        source: text of the task's module (KernelBench format). Its `SMALL`, if any, says which constants may vary.
        overrides: values that replace constants of the module for the large form.
        fixed: constants that keep their value, in lower case.
        dtype: what floating inputs and weights are cast to; None keeps the task's own.

    Raises:
        NotSymbolic: the module cannot be built without memory, or a size follows no constant.
    """
    tree = ast.parse(source)
    first_namespace = _execute(source)
    declared = {name: value for name, value in dict(first_namespace.get("SMALL", {})).items()}
    first = _build(source, overrides, {}, dtype)
    large = {name: first.namespace[name] for name in declared or _input_constants(tree, first.namespace)}
    second_values = {
        name: int(declared[name]) if declared else value * (index + 2)
        for index, (name, value) in enumerate(large.items())
        if type(value) is int and value > 1 and name.lower() not in fixed
    }
    second = _build(source, overrides, second_values, dtype)
    sizes = SymbolicSizes()
    symbols = {
        name: sizes.size(name.lower(), large[name], _lowest(large[name], second_values[name]))
        for name in second_values
        if second_values[name] != large[name]
    }
    pairs = {name: (int(large[name]), second_values[name]) for name in symbols}
    return _assemble(first, second, sizes, symbols, pairs, bool(declared))


def _execute(source: str, values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "task"}
    exec(compile(source, "task", "exec"), namespace)
    namespace.update(values or {})
    return namespace


def _build(source: str, overrides: Mapping[str, Any], values: Mapping[str, int], dtype: str | None) -> _Built:
    try:
        with torch.device("meta"):
            if "SMALL" not in source and values:
                source = _with_constants(source, values)
            namespace = _execute(source, {**overrides, **values})
            model = namespace["Model"](*namespace["get_init_inputs"]())
            return _Built(namespace, *cast(model, namespace["get_inputs"](), dtype))
    except Exception as error:
        detail = str(error).splitlines()[0] if str(error) else "no reason given"
        raise NotSymbolic(f"The model cannot be built without memory ({type(error).__name__}: {detail}).") from error


def _with_constants(source: str, values: Mapping[str, int]) -> str:
    """Replaces integer constants where they are assigned, so that constants computed from them follow."""
    tree = ast.parse(source)
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in values and isinstance(node.value, ast.Constant):
                node.value = ast.Constant(values[name])
    return ast.unparse(tree)


def _input_constants(tree: ast.Module, namespace: Mapping[str, Any]) -> list[str]:
    """Integer constants of the module that `get_inputs` uses, directly or through other constants."""
    uses: dict[str, set[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    uses[target.id] = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
        elif isinstance(node, ast.FunctionDef) and node.name == "get_inputs":
            uses["get_inputs"] = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    reached: set[str] = set()
    waiting = ["get_inputs"]
    while waiting:
        for name in uses.get(waiting.pop(), set()) - reached:
            reached.add(name)
            waiting.append(name)
    literal = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return [
        name for name in uses if name in reached & literal and type(namespace.get(name)) is int and namespace[name] > 1
    ]


def _lowest(first: int, second: int) -> int:
    """What may be assumed of a size: a bound keeps special cases for sizes of one or two out of the kernels."""
    return max(2, min(first, second, _ASSUMED))


class _Sizes:
    """Finds the expression, in symbols, of an integer that has two values."""

    def __init__(self, symbols: Mapping[str, Any], pairs: Mapping[str, Pair]) -> None:
        self.table: list[tuple[Pair, Any]] = []
        single = [(pairs[name], symbols[name]) for name in symbols]
        self.table += single
        for (first, second), symbol in single:
            self.table += [((first * k, second * k), symbol * k) for k in range(2, 9)]
            self.table += [((first // k, second // k), symbol // k) for k in (2, 3, 4, 8)]
            self.table += [((first + k, second + k), symbol + k) for k in (-1, 1)]
        for (left, one), (right, other) in itertools.combinations(single, 2):
            self.table.append(((left[0] * right[0], left[1] * right[1]), one * other))
            self.table.append(((left[0] + right[0], left[1] + right[1]), one + other))

    def find(self, first: int, second: int, where: str) -> Any:
        if first == second:
            return first
        for pair, expression in self.table:
            if pair == (first, second):
                return expression
        raise NotSymbolic(f"The size {first} of {where} follows none of the task's constants.")


def _assemble(
    first: _Built,
    second: _Built,
    sizes: SymbolicSizes,
    symbols: Mapping[str, Any],
    pairs: Mapping[str, Pair],
    declared: bool,
) -> SymbolicTask:
    with sizes.mode:
        finder = _Sizes(symbols, pairs)
        names = _parameter_names(first.model, len(first.inputs))
        inputs: list[TensorInput] = []
        tensors: list[Any] = []
        positions: dict[str, int] = {}
        plain: dict[int, Any] = {}
        for index, (name, one, other) in enumerate(zip(names, first.inputs, second.inputs, strict=True)):
            if not isinstance(one, torch.Tensor):
                if isinstance(one, list | tuple | dict):
                    raise NotSymbolic(f"The input {name} is a {type(one).__name__} of values, not a tensor.")
                plain[index] = finder.find(one, other, name) if type(one) is int else one
                continue
            inputs.append(TensorInput(name, _sizes_of(finder, one, other, name), False))
            tensors.append(_fake(one, inputs[-1].sizes))
        twins = dict(_state(second.model))
        for path, one in _state(first.model):
            inputs.append(TensorInput(f"self.{path}", _sizes_of(finder, one, twins[path], path), True))
            positions[path] = len(tensors)
            tensors.append(_fake(one, inputs[-1].sizes))
        _make_attributes_symbolic(first.model, second.model, finder)
    _make_globals_symbolic(first.namespace, symbols)
    structure: list[Any] = []
    count, states = len(symbols), positions

    def forward(*arguments: Any) -> Sequence[Any]:
        values = arguments[count:]
        state = {path: values[position] for path, position in states.items()}
        given = iter(values[: len(values) - len(states)])
        call = [plain[i] if i in plain else next(given) for i in range(len(names))]
        with DEVICE:
            result = torch.func.functional_call(first.model, state, tuple(call), strict=False)
        flat, shape = pytree.tree_flatten(result)
        structure[:] = [shape]
        return flat

    return SymbolicTask(
        sizes=sizes,
        size_names=tuple(symbols),
        second_values={name.lower(): pair[1] for name, pair in pairs.items()},
        arguments=(*symbols.values(), *tensors),
        inputs=tuple(inputs),
        forward_arguments=tuple(names),
        function=forward,
        output_structure=structure,
        varies_by_declaration=declared,
    )


def _parameter_names(model: torch.nn.Module, count: int) -> list[str]:
    import inspect

    names = [name for name, p in inspect.signature(model.forward).parameters.items() if p.kind is not p.VAR_KEYWORD]
    parameters = inspect.signature(model.forward).parameters
    if any(parameters[name].kind is inspect.Parameter.VAR_POSITIONAL for name in names) or len(names) < count:
        raise NotSymbolic("The forward method does not name one parameter for each input.")
    return names[:count]


def _state(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _sizes_of(finder: _Sizes, one: torch.Tensor, other: torch.Tensor, name: str) -> tuple[Any, ...]:
    if one.dim() != other.dim():
        raise NotSymbolic(f"The number of dimensions of {name} depends on the task's sizes.")
    if not one.is_contiguous():
        raise NotSymbolic(f"The tensor {name} is not contiguous.")
    return tuple(finder.find(a, b, name) for a, b in zip(one.shape, other.shape, strict=True))


def _fake(like: torch.Tensor, sizes: tuple[Any, ...]) -> torch.Tensor:
    return torch.empty(sizes, dtype=like.dtype, device=DEVICE)


def _make_attributes_symbolic(first: torch.nn.Module, second: torch.nn.Module, finder: _Sizes) -> None:
    for (path, one), (_, other) in zip(first.named_modules(), second.named_modules(), strict=True):
        for name, value in list(vars(one).items()):
            if name.startswith("_") or name not in vars(other) or isinstance(value, bool):
                continue
            twin, where = vars(other)[name], f"{path}.{name}".lstrip(".")
            if type(value) is int and type(twin) is int:
                vars(one)[name] = finder.find(value, twin, where)
            elif isinstance(value, tuple | list) and value and all(type(item) is int for item in value):
                found = [finder.find(a, b, where) for a, b in zip(value, twin, strict=True)]
                vars(one)[name] = tuple(found) if isinstance(value, tuple) else found
            elif isinstance(value, float) and value != twin:
                raise NotSymbolic(f"The number {where} of the model depends on the task's sizes.")


def _make_globals_symbolic(namespace: dict[str, Any], symbols: Mapping[str, Any]) -> None:
    """Lets forward see symbols where it reads constants, and a `math` that does not turn a symbol into a number."""
    namespace.update(symbols)
    if namespace.get("math") is math:
        contents = {name: getattr(math, name) for name in dir(math) if not name.startswith("_")}
        contents["sqrt"] = lambda value: torch.sym_sqrt(value) if isinstance(value, torch.SymInt) else math.sqrt(value)
        namespace["math"] = SimpleNamespace(**contents)
