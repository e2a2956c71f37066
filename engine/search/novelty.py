"""How different two kernels are in structure: pure functions of their texts.

A text is reduced to what its Triton kernels do and how they are launched: which operations stand inside which
loops and branches, how many kernels there are, how the grid is laid out, what is left to PyTorch. Names, numbers,
tile sizes and launch options do not count, so two variants of one structure are alike.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

Structure = Mapping[str, int]
"""What a text does, each thing with how often it does it."""

_NESTING = (ast.For, ast.While, ast.If)
_TELLING = (ast.BinOp, ast.Compare, ast.Call)
_SKIPPED = (ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.Name, ast.Constant, ast.expr_context, ast.operator)
_LANGUAGE = ("tl", "triton.language", "language")
_LIBRARIES = ("torch", "F", "nn", "math", "libdevice", *_LANGUAGE)


def structure_of(source: str) -> Structure:
    """What a module's kernels and launches do; a text that is no Python has no structure."""
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    functions = list(_functions(module.body))
    kernels = frozenset(function.name for function in functions if _is_kernel(function))
    found: Counter[str] = Counter()
    for function in functions:
        if function.name in kernels:
            found["kernel"] += 1
            found.update(f"kernel {feature}" for feature in _features(function.body, kernels))
        elif function.name != "__init__":
            found.update(f"host {feature}" for feature in _features(function.body, kernels))
    return dict(found)


def _functions(body: Iterable[ast.AST]) -> Iterator[ast.FunctionDef]:
    """The functions of a module and of its classes."""
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield node
            yield from _functions(node.body)
        elif isinstance(node, (ast.ClassDef, ast.If, ast.Try)):
            yield from _functions(node.body)


def distance(one: Structure, other: Structure) -> float:
    """0 for the same structure, 1 for two that share nothing (the Jaccard distance of multisets)."""
    names = one.keys() | other.keys()
    most = sum(max(one.get(name, 0), other.get(name, 0)) for name in names)
    if not most:
        return 0.0
    return 1.0 - sum(min(one.get(name, 0), other.get(name, 0)) for name in names) / most


def novelty(structure: Structure, pool: Iterable[Structure]) -> float:
    """How far a structure is from the nearest one of a pool; 1 where the pool is empty."""
    return min((distance(structure, held) for held in pool), default=1.0)


def _is_kernel(function: ast.FunctionDef) -> bool:
    return any(_dotted(decorator).rpartition(".")[2] == "jit" for decorator in function.decorator_list)


def _features(body: Iterable[ast.AST], kernels: Collection[str]) -> Iterator[str]:
    """What the statements of a function do, each thing with the loops and branches that it stands in."""
    waiting: list[tuple[object, str]] = [(node, "") for node in body]
    while waiting:
        node, inside = waiting.pop()
        if isinstance(node, list):
            waiting.extend((each, inside) for each in node)
        if not isinstance(node, ast.AST) or isinstance(node, _SKIPPED):
            continue
        if isinstance(node, _NESTING):
            inside = f"{inside}{type(node).__name__}/"
            yield inside
        elif isinstance(node, _TELLING):
            yield from (inside + name for name in _names(node, kernels))
        waiting.extend((getattr(node, name, None), inside) for name in node._fields)


def _names(node: ast.AST, kernels: Collection[str]) -> Iterator[str]:
    """What a node does by itself."""
    if isinstance(node, ast.BinOp):
        yield type(node.op).__name__
    elif isinstance(node, ast.Compare):
        yield "compare"
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Subscript) and _dotted(node.func.value) in kernels:
            grid = node.func.slice
            yield f"launch {len(grid.elts) if isinstance(grid, ast.Tuple) else 'of a computed'} grid"
            return
        owner, _, name = _dotted(node.func).rpartition(".")
        if owner in _LIBRARIES or owner.startswith("torch."):
            yield f"{'tl' if owner in _LANGUAGE else 'torch'} {name}{_precision(node)}"
        elif name in kernels:
            yield "device function"


def _precision(call: ast.Call) -> str:
    """How precisely a product is asked for, which is part of what a kernel does."""
    asked = [keyword.value for keyword in call.keywords if keyword.arg == "input_precision"]
    return "".join(f" {value.value!s}" for value in asked if isinstance(value, ast.Constant))


def _dotted(node: ast.AST) -> str:
    """`a.b.c` as written; a call stands for what is called."""
    if isinstance(node, ast.Call):
        return _dotted(node.func)
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value)
        return f"{owner}.{node.attr}" if owner else node.attr
    return node.id if isinstance(node, ast.Name) else ""
