"""How different two kernels are in structure: pure functions of their texts.

A text is reduced to what its Triton kernels do and how they are launched: which operations stand inside which
loops and branches, how many kernels there are, how the grid is laid out, what is left to PyTorch. Names, numbers,
tile sizes and launch options do not count, so two variants of one structure are alike.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

Structure = Mapping[str, int]
"""What a text does, each thing with how often it does it."""

_NESTING = (ast.For, ast.While, ast.If)
_LANGUAGE = ("tl", "triton.language", "language")
_LIBRARIES = ("torch", "F", "nn", "math", "libdevice", *_LANGUAGE)


def structure_of(source: str) -> Structure:
    """What a module's kernels and launches do; a text that is no Python has no structure."""
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    kernels = {node.name for node in ast.walk(module) if isinstance(node, ast.FunctionDef) and _is_kernel(node)}
    found: Counter[str] = Counter()
    for node in ast.walk(module):
        if not isinstance(node, ast.FunctionDef):
            continue
        if node.name in kernels:
            found["kernel"] += 1
            found.update(f"kernel {feature}" for feature in _features(node.body, "", kernels))
        elif node.name != "__init__":
            found.update(f"host {feature}" for feature in _features(node.body, "", kernels))
    return found


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


def _features(body: Iterable[ast.AST], inside: str, kernels: set[str]) -> Iterator[str]:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        here = inside
        if isinstance(node, _NESTING):
            here = f"{inside}{type(node).__name__}/"
            yield here
        else:
            yield from (inside + name for name in _names(node, kernels))
        yield from _features(ast.iter_child_nodes(node), here, kernels)


def _names(node: ast.AST, kernels: set[str]) -> Iterator[str]:
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
