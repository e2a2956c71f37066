"""Smaller forms of a task that declares none: its constants divided until a machine of any size can hold it.

What only `get_inputs` uses (batch and image sizes) goes first, since weights keep their sizes then. Nothing is
allocated here: sizes are counted on tensors without memory.
"""

from __future__ import annotations

import ast
import contextlib
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from engine.tasks.functions import as_model
from engine.tasks.opening import load_module

MOST_ELEMENTS, MOST_WEIGHTS = 1 << 20, 1 << 26
"""How many elements inputs and outputs together, and weights, of a scaled form may have, about."""

_LEAST_ROWS, _LEAST_WIDTH = 8, 512
"""What the leading dimension and sizes of weights are not divided below."""

_LEAST_SIZES = (16, 32)
"""What other sizes of inputs are not divided below, at first and where the reference needs more."""

Constants = dict[str, Any]
Count = Callable[[types.ModuleType], int]


def scaled_sources(source: str, overrides: Mapping[str, Any]) -> Iterator[str]:
    """The task as module texts, the smallest form first and its own size last.

    Whether the reference runs at a form is for the caller to find out.

    Args:
        source: the task's text.
        overrides: constants that a case replaces.

    Raises:
        TaskProblem: the task cannot be executed.
    """
    plain = with_constants(as_model(source), overrides)
    tree = ast.parse(plain)
    assigned = _assigned(tree)
    found = vars(load_module(plain, {}, "task"))
    numbers = {name: value for name, value in found.items() if name in assigned and type(value) is int and value > 1}
    inputs, weights = _used_by(tree, "get_inputs"), _used_by(tree, "get_init_inputs")
    free = {name: value for name, value in numbers.items() if name in inputs - weights}
    shared = {name: value for name, value in numbers.items() if name in weights and value > _LEAST_WIDTH}
    rows = [name for name in free if _leads(plain, name, free[name])]

    def divided(values: Constants, least: Mapping[str, int], count: Count, most: int) -> Constants:
        """The values, the one that is furthest above its least halved again and again until no more than `most`."""
        values = dict(values)
        while values and _on_meta(plain, values, count) > most:
            name = max(values, key=lambda name: values[name] / least[name])
            if values[name] <= least[name]:
                break
            values[name] = max(least[name], values[name] // 2)
        return values

    narrow = divided(shared, dict.fromkeys(shared, _LEAST_WIDTH), _weights, MOST_WEIGHTS)
    small = [
        divided(free, {name: _LEAST_ROWS if name in rows else least for name in free}, _size, MOST_ELEMENTS)
        for least in _LEAST_SIZES
    ]
    # A size that something else in the task is made for has to stay: it may be any one of them.
    kept = [{**small[0], name: free[name]} for name in free if name not in rows]
    few = {name: min(free[name], _LEAST_ROWS) for name in rows}
    forms = [*({**form, **narrow} for form in (small[0], *kept, small[1], few)), narrow]
    # Some references need real values: of those nothing is known before they run.
    telling = _on_meta(plain, {}, _results) > 0
    running = [form for form in forms if not telling or _on_meta(plain, form, _results) > 0]
    yield from dict.fromkeys(with_constants(plain, values) for values in (*running, {}))


def with_constants(source: str, values: Mapping[str, Any]) -> str:
    """The module's text with constants replaced where they are assigned, so that what is computed from them follows."""
    tree = ast.parse(source)
    body: list[ast.stmt] = []
    for node in tree.body:
        body.append(node)
        if isinstance(node, ast.Assign):
            names = {part for target in node.targets for part in _names(target)} & values.keys()
            body += [ast.parse(f"{name} = {values[name]!r}").body[0] for name in sorted(names)]
    return source if len(body) == len(tree.body) else ast.unparse(ast.Module(body, []))


def _used_by(tree: ast.Module, function: str) -> set[str]:
    """The names that a function of the module uses, directly or through other names of the module."""
    uses: dict[str, set[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            uses[node.name] = _names(node)
        elif isinstance(node, ast.Assign):
            for name in {part for target in node.targets for part in _names(target)}:
                uses[name] = _names(node.value)
    found: set[str] = set()
    waiting = [function]
    while waiting:
        new = uses.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _assigned(tree: ast.Module) -> set[str]:
    assignments = [node for node in tree.body if isinstance(node, ast.Assign)]
    return {name for node in assignments for target in node.targets for name in _names(target)}


def _on_meta(source: str, values: Mapping[str, Any], count: Count) -> int:
    """What is counted at some constants, without memory; nothing where the task's code cannot do without."""
    try:
        with torch.device("meta"):
            return count(load_module(with_constants(source, values), {}, "task"))
    except Exception:
        return 0


def _tensors(module: types.ModuleType) -> list[torch.Tensor]:
    return [value for value in tree_leaves(module.get_inputs()) if isinstance(value, torch.Tensor)]


def _model(module: types.ModuleType) -> torch.nn.Module:
    model: torch.nn.Module = module.Model(*getattr(module, "get_init_inputs", list)())
    return model


def _results(module: types.ModuleType) -> int:
    """The elements of the reference's outputs. Raises what the reference raises."""
    with torch.no_grad():
        results = _model(module)(*module.get_inputs())
    return sum(tensor.numel() for tensor in tree_leaves(results) if isinstance(tensor, torch.Tensor))


def _size(module: types.ModuleType) -> int:
    """The elements of inputs and outputs; of inputs alone where the reference does not run without values."""
    elements = sum(tensor.numel() for tensor in _tensors(module))
    with contextlib.suppress(Exception):
        elements += _results(module)
    return elements


def _weights(module: types.ModuleType) -> int:
    model = _model(module)
    return sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))


def _leads(source: str, name: str, value: int) -> bool:
    """Whether a constant is the leading dimension of an input: halved, it halves that."""
    lengths: list[list[int]] = []

    def count(module: types.ModuleType) -> int:
        lengths.append([tensor.shape[0] for tensor in _tensors(module) if tensor.dim()])
        return 0

    for constant in (value, value // 2):
        _on_meta(source, {name: constant}, count)
    return len(lengths) == 2 and any(other == one // 2 for one, other in zip(*lengths, strict=False))
