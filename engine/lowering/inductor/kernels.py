"""Rewrites one kernel of Inductor as plain Triton: general sizes, names that mean something, no run-time library."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.lowering.inductor.arithmetic import is_number
from engine.lowering.inductor.names import rename_locals
from engine.lowering.inductor.rewriter import STAYS, FullShapes, OneRowAxis, Rewriter, with_named_sizes
from engine.lowering.inductor.syntax import (
    Renaming,
    assigned_name,
    blocks_of,
    called,
    expression,
    inline_single_uses,
    names_in,
    remove_unused,
    stored_names,
    substitute,
)
from engine.lowering.inductor.wrapper import WrittenKernel

BATCH_GRID = "BatchMatmulGrid3D"
"""Inductor's name for a grid whose first axis is the batch, with one matrix in each program."""

WIDTH = 84
"""Longest statement that results from moving an expression, in characters, before values get their longer names."""


@dataclass(frozen=True, slots=True)
class PlainKernel:
    """A rewritten kernel.

    `parameters` are the readable names in the order of the signature: pointers, sizes, then blocks. `blocks` maps the
    blocks that a launch must choose to their axis ("x", "y", "z", "r0_"); `lengths` gives, for a block that holds a
    whole reduction, the size that it must cover.
    """

    name: str
    function: ast.FunctionDef
    parameters: tuple[str, ...]
    blocks: Mapping[str, str]
    lengths: Mapping[str, str | int]
    defined: frozenset[str]
    helpers: tuple[str, ...]
    has_loop: bool
    has_hints: bool
    has_product: bool
    batch_first: bool


def rewrite_kernel(
    kernel: WrittenKernel,
    name: str,
    pointers: Mapping[str, str],
    sizes: Mapping[str, str | int],
    many_rows: bool = False,
) -> PlainKernel:
    """Rewrites a kernel.

    Args:
        kernel: as read from the wrapper.
        name: what to call it.
        pointers: readable name of each pointer parameter, without suffix.
        sizes: readable name, or the value, of each size parameter.
        many_rows: whether the second axis may have more programs than a grid allows (65535), so that it continues
            in the third.

    Raises:
        NotReadable: the kernel uses something that has no plain form here.
    """
    function = copy.deepcopy(kernel.function)
    axes = [p.arg.removesuffix("BLOCK").lower() for p in function.args.args if p.arg.endswith("BLOCK")]
    body, lengths = _without_preamble(function.body, axes)
    block_names = _block_names(axes, lengths)
    size_names = {value for value in sizes.values() if isinstance(value, str)}
    substitution: dict[str, ast.expr] = {
        size: ast.Constant(value) if isinstance(value, int) else ast.Name(value, ast.Load())
        for size, value in sizes.items()
    }
    lengths = {axis: _size_of(length, sizes) for axis, length in lengths.items()}
    substitution |= {f"{axis.upper()}BLOCK": ast.Name(block, ast.Load()) for axis, block in block_names.items()}
    fixed = _axes_of_one(kernel, axes, sizes, function)
    if kernel.grid == BATCH_GRID:
        fixed.append("z")
    for axis in fixed:
        substitution[f"{axis.upper()}BLOCK"] = ast.Constant(1)
        block_names.pop(axis, None)
    body = substitute(body, substitution)
    body = _without_aliases(body)
    if not many_rows:
        body = [OneRowAxis().visit(statement) for statement in body]
    rewriter = Rewriter(size_names, _all_float32(kernel))
    before = ""
    while (now := _text(body)) != before:
        before = now
        body = _without_aliases(_flatten([rewriter.visit(statement) for statement in body]))
    full = FullShapes(body, one_row="x" in fixed)
    body = [full.visit(statement) for statement in body]
    body = _without_aliases(body)
    remove_unused(body, _has_effect)
    inline_single_uses(body, _may_move, WIDTH)
    body, quotients = with_named_sizes(body, size_names)
    helper_names = {helper.name: f"{name}_combine{i or ''}" for i, helper in enumerate(kernel.helpers)}
    pointer_names = {pointer: f"{readable}_ptr" for pointer, readable in pointers.items()}
    body = [Renaming({**helper_names, **pointer_names}).visit(statement) for statement in body]
    taken = {
        *quotients,
        *pointer_names.values(),
        *size_names,
        *block_names.values(),
        *rewriter.defined,
        *helper_names.values(),
        name,
    }
    rename_locals(body, axes, dict(zip(pointer_names.values(), pointers.values(), strict=True)), taken)
    used = set().union(*(names_in(statement) for statement in body)) if body else set()
    ordered_sizes = list(dict.fromkeys(value for value in sizes.values() if isinstance(value, str) and value in used))
    parameters = [*dict.fromkeys(pointer_names.values()), *ordered_sizes, *block_names.values()]
    function = _signature(name, parameters, {*ordered_sizes, *block_names.values()}, body)
    return PlainKernel(
        name=name,
        function=function,
        parameters=tuple(parameters),
        blocks={block: axis for axis, block in block_names.items()},
        lengths={block_names[axis]: length for axis, length in lengths.items() if axis in block_names},
        defined=frozenset(rewriter.defined),
        helpers=tuple(_helper_text(helper, helper_names[helper.name], rewriter) for helper in kernel.helpers),
        has_loop=any(isinstance(node, ast.For) for node in ast.walk(function)),
        batch_first=kernel.grid == BATCH_GRID,
        has_product=any(called(node) == "tl.dot" for node in ast.walk(function)),
        has_hints=any(isinstance(node, ast.keyword) and node.arg == "eviction_policy" for node in ast.walk(function)),
    )


def with_hints(function: ast.FunctionDef, hints: str) -> ast.FunctionDef:
    """The kernel with another policy for evicting cached lines of loads: "as_lowered", "none" or a Triton policy."""
    changed = copy.deepcopy(function)
    if hints == "as_lowered":
        return changed
    for node in ast.walk(changed):
        if isinstance(node, ast.Call) and called(node) == "tl.load":
            node.keywords = [k for k in node.keywords if k.arg != "eviction_policy"]
            if hints != "none":
                node.keywords.append(ast.keyword("eviction_policy", ast.Constant(hints)))
    return changed


def _text(body: list[ast.stmt]) -> str:
    return "\n".join(ast.unparse(ast.fix_missing_locations(statement)) for statement in body)


def _without_preamble(body: list[ast.stmt], axes: list[str]) -> tuple[list[ast.stmt], dict[str, str | int]]:
    """Takes out what fixes block sizes; also returns the axes that a block covers whole, with their length's name."""
    kept: list[ast.stmt] = []
    lengths: dict[str, str | int] = {}
    for statement in body:
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and statement.value is not None
        ):
            target = statement.target.id
            if re.fullmatch(r"R\d_BLOCK", target) and isinstance(statement.value, ast.Constant):
                axis = target.removesuffix("BLOCK").lower()
                axes.append(axis)
                lengths[axis] = f"{axis}numel"
                continue
            kept.append(ast.Assign([statement.target], statement.value, lineno=0))
            continue
        kept.append(statement)
    return kept, lengths


def _size_of(length: str | int, sizes: Mapping[str, str | int]) -> str | int:
    return sizes.get(length, length) if isinstance(length, str) else length


def _block_names(axes: Sequence[str], lengths: Mapping[str, str | int]) -> dict[str, str]:
    reduced = [axis for axis in axes if axis.startswith("r")]
    kept = [axis for axis in axes if not axis.startswith("r")]
    if not reduced and len(kept) == 1:
        return {kept[0]: "BLOCK_SIZE"}
    labels = {1: ["ROWS"], 2: ["ROWS", "COLUMNS"], 3: ["PLANES", "ROWS", "COLUMNS"]}[len(kept)]
    names = {axis: f"BLOCK_{label}" for axis, label in zip(sorted(kept, reverse=True), labels, strict=True)}
    if len(kept) > 1:
        names = dict(zip(sorted(kept, key="zyx".index), [f"BLOCK_{label}" for label in labels], strict=True))
    label = "COLUMNS" if len(kept) == 1 else "INNER"
    for index, axis in enumerate(reduced):
        names[axis] = f"BLOCK_{label}" + (f"_{index + 1}" if index else "")
    return names


def _axes_of_one(
    kernel: WrittenKernel, axes: Sequence[str], sizes: Mapping[str, str | int], function: ast.FunctionDef
) -> list[str]:
    """Axes that have one element, for which Inductor leaves out the mask."""
    constants = {
        assigned_name(s): s.value.value
        for s in function.body
        if isinstance(s, ast.Assign) and isinstance(s.value, ast.Constant)
    }
    return [a for a in axes if not a.startswith("r") and 1 in (sizes.get(f"{a}numel"), constants.get(f"{a}numel"))]


def _all_float32(kernel: WrittenKernel) -> bool:
    return all(kind in ("*fp32", "*i64", "*i32", "*i1") for kind in kernel.signature.values() if kind.startswith("*"))


def _flatten(statements: list[ast.stmt | None]) -> list[ast.stmt]:
    return [statement for statement in statements if statement is not None]


def _without_aliases(body: list[ast.stmt]) -> list[ast.stmt]:
    """Replaces names that only stand for another name, a number or an expression of sizes."""
    while True:
        stores = stored_names(body)
        values: dict[str, ast.expr] = {}
        for block in blocks_of(body):
            for statement in list(block):
                name = assigned_name(statement)
                if name is None or name in values:
                    continue
                assert isinstance(statement, ast.Assign)
                value = statement.value
                if stores[name] != 1:
                    if isinstance(value, ast.Name) and re.fullmatch(r"r\d_\d+|rindex|roffset", name):
                        values[name] = value
                    continue
                alias = isinstance(value, ast.Name) and stores[value.id] <= 1
                if alias or is_number(value) or _is_pure_size(value, stores):
                    values[name] = value
                    break
            if values:
                break
        if not values:
            return body
        for block in blocks_of(body):
            block[:] = [statement for statement in block if assigned_name(statement) not in values]
        body = substitute(body, values)


def _is_pure_size(node: ast.expr, stores: Mapping[str, int]) -> bool:
    """An expression of parameters only, with plain arithmetic."""
    allowed = (ast.BinOp, ast.UnaryOp, ast.Name, ast.Constant, ast.operator, ast.unaryop, ast.Load)
    found = names_in(node)
    return (
        bool(found)
        and not any(stores.get(name) for name in found)
        and all(isinstance(part, allowed) for part in ast.walk(node))
        and not any(name.startswith("BLOCK") for name in found)
    )


def _has_effect(statement: ast.stmt) -> bool:
    return any(called(node).startswith(("tl.store", "tl.atomic")) for node in ast.walk(statement))


def _may_move(value: ast.expr) -> bool:
    if isinstance(value, ast.Compare) and re.search(r"\b(x|y|z|r\d_)index\b", ast.unparse(value)):
        return False
    if re.search(r"\b[xyz]offset\b|arange", ast.unparse(value)) and "program_id" not in ast.unparse(value):
        return False
    return not any(isinstance(node, ast.Call) and STAYS.search(called(node)) for node in ast.walk(value))


def _signature(name: str, parameters: Sequence[str], constants: set[str], body: list[ast.stmt]) -> ast.FunctionDef:
    arguments = [ast.arg(p, expression("tl.constexpr") if p in constants else None) for p in parameters]
    listed = ast.arguments([], arguments, None, [], [], None, [])
    return ast.FunctionDef(name, listed, body, [], None, lineno=0)


def _helper_text(helper: ast.FunctionDef, name: str, rewriter: Rewriter) -> str:
    function = copy.deepcopy(helper)
    function.name, function.decorator_list = name, [expression("triton.jit")]
    function.body = _flatten([rewriter.visit(statement) for statement in function.body])
    inline_single_uses(function.body, _may_move, WIDTH)
    names: dict[str, str] = {}
    for argument in function.args.args:
        side, _, index = argument.arg.partition("_")
        new = {"arg0": "a", "arg1": "b"}.get(side, side) + (f"_{index}" if index not in ("", "0") else "")
        names[argument.arg], argument.arg = new, new
    function.body = [Renaming(names).visit(statement) for statement in function.body]
    return ast.unparse(ast.fix_missing_locations(function))
