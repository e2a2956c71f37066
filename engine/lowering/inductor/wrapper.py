"""Reads the wrapper text that Inductor writes: its kernels and the steps of its call, as syntax trees."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class NotReadable(Exception):
    """The text holds something this reader does not know; the text is one sentence."""


@dataclass(frozen=True, slots=True)
class WrittenKernel:
    """A kernel as Inductor wrote it.

    `heuristic` is the name of Inductor's decorator ("pointwise", "reduction", "persistent_reduction"), `signature`
    maps parameters to Triton types ("*fp32", "i32", "constexpr"), `operations` are ATen names without prefix.
    """

    name: str
    function: ast.FunctionDef
    helpers: tuple[ast.FunctionDef, ...]
    heuristic: str
    signature: Mapping[str, str]
    grid: str
    inner_reduction: bool
    operations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wrapper:
    """The kernels by their name in the text, the statements of the call, the names of its arguments in order."""

    kernels: Mapping[str, WrittenKernel]
    statements: tuple[ast.stmt, ...]
    arguments: tuple[str, ...]
    constants: Mapping[str, ast.expr] = field(default_factory=dict)


def read_wrapper(text: str) -> Wrapper:
    """Parses the text of a lowered graph.

    Raises:
        NotReadable: the text has no call, or a kernel of a kind that is not known.
    """
    tree = ast.parse(text)
    operations = _operations(text)
    kernels: dict[str, WrittenKernel] = {}
    call: ast.FunctionDef | None = None
    for node in tree.body:
        if isinstance(node, ast.Assign) and _is_kernel(node.value):
            assert isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name)
            name = node.targets[0].id
            kernels[name] = _read_kernel(name, _constant_text(node.value.args[1]), operations.get(name, ()))
        elif isinstance(node, ast.ClassDef) and node.name == "Runner":
            call = next(n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "call")
        elif isinstance(node, ast.FunctionDef) and node.name == "call":
            call = node
    if call is None:
        raise NotReadable("The lowered text has no call.")
    statements = tuple(_flat(call.body))
    return Wrapper(kernels, statements, _argument_names(statements))


def _is_kernel(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in (
        "async_compile.triton",
        "async_compile.cpp_pybinding",
    )


def _constant_text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise NotReadable("A kernel's text is not a plain string.")


def _flat(body: list[ast.stmt]) -> list[ast.stmt]:
    statements: list[ast.stmt] = []
    for node in body:
        statements += _flat(node.body) if isinstance(node, ast.With) else [node]
    return statements


def _argument_names(statements: tuple[ast.stmt, ...]) -> tuple[str, ...]:
    for node in statements:
        if isinstance(node, ast.Assign) and ast.unparse(node.value) == "args":
            target = node.targets[0]
            return tuple(ast.unparse(e) for e in target.elts) if isinstance(target, ast.Tuple | ast.List) else ()
    return ()


def _operations(text: str) -> dict[str, tuple[str, ...]]:
    """The ATen operations that the comment above each kernel names, by kernel."""
    found: dict[str, tuple[str, ...]] = {}
    pending: tuple[str, ...] = ()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and (match := re.search(r"Original ATen: \[(.*)\]", token.string)):
            names = [name.strip() for name in match.group(1).split(",") if name.strip()]
            pending = tuple(re.sub(r"^(aten|prims|inductor)\.", "", name) for name in names)
        elif token.type == tokenize.NAME and token.string.startswith("triton_") and pending:
            found.setdefault(token.string, pending)
            pending = ()
    return found


def _read_kernel(name: str, text: str, operations: tuple[str, ...]) -> WrittenKernel:
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    function = next((node for node in functions if node.name == name), None) or functions[-1]
    heuristic, grid, inner = "", "", True
    signature: dict[str, str] = {}
    for decorator in function.decorator_list:
        if not isinstance(decorator, ast.Call):
            continue
        heuristic = ast.unparse(decorator.func).rpartition(".")[2]
        for keyword in decorator.keywords:
            if keyword.arg == "triton_meta":
                signature = dict(_entry(keyword.value, "signature"))
            elif keyword.arg == "inductor_meta":
                grid = str(_entry(keyword.value, "grid_type"))
            elif keyword.arg == "reduction_hint":
                inner = ast.unparse(keyword.value).endswith("INNER")
    if heuristic not in ("pointwise", "reduction", "persistent_reduction"):
        raise NotReadable(
            f"Inductor wrote a kernel of the kind {heuristic or 'unknown'}, which has no plain form here."
        )
    helpers = tuple(node for node in functions if node is not function)
    return WrittenKernel(name, function, helpers, heuristic, signature, grid, inner, operations)


def _entry(node: ast.expr, key: str) -> Any:
    if isinstance(node, ast.Dict):
        for name, value in zip(node.keys, node.values, strict=True):
            if isinstance(name, ast.Constant) and name.value == key:
                return ast.literal_eval(value)
    raise NotReadable(f"A kernel's description has no entry {key}.")
