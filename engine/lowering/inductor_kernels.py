"""Rewrites one kernel of Inductor as plain Triton: general sizes, names that mean something, no run-time library."""

from __future__ import annotations

import ast
import copy
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.lowering import inductor_plain as plain
from engine.lowering.inductor_names import rename_locals
from engine.lowering.inductor_syntax import (
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
from engine.lowering.inductor_wrapper import NotReadable, WrittenKernel

BATCH_GRID = "BatchMatmulGrid3D"
"""Inductor's name for a grid whose first axis is the batch, with one matrix in each program."""

WIDTH = 84
"""Longest statement that results from moving an expression, in characters, before values get their longer names."""

_STAYS = re.compile(
    r"tl\.(load|store|sum|max|min|reduce|associative_scan|dot|atomic\w+|argmax|argmin)$|\w+_finish$|\w+_step$"
)
_INDEX = re.compile(r"[xyz]\d+|r\d_\d+|([xyz]|r\d_)index")
_SHAPES_ONLY = re.compile(r"tl\.(broadcast_to|reshape|trans|expand_dims)$")


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
        body = [_OneRowAxis().visit(statement) for statement in body]
    rewriter = _Rewriter(size_names, _all_float32(kernel))
    before = ""
    while (now := _text(body)) != before:
        before = now
        body = _without_aliases(_flatten([rewriter.visit(statement) for statement in body]))
    full = _FullShapes(body, one_row="x" in fixed)
    body = [full.visit(statement) for statement in body]
    body = _without_aliases(body)
    remove_unused(body, _has_effect)
    inline_single_uses(body, _may_move, WIDTH)
    body, quotients = _with_named_sizes(body, size_names)
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
                if alias or _is_number(value) or _is_pure_size(value, stores):
                    values[name] = value
                    break
            if values:
                break
        if not values:
            return body
        for block in blocks_of(body):
            block[:] = [statement for statement in block if assigned_name(statement) not in values]
        body = substitute(body, values)


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _is_number(node.operand)
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float)
    return isinstance(node, ast.Call) and called(node) == "float" and isinstance(node.args[0], ast.Constant)


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


class _Rewriter(ast.NodeTransformer):
    """Replaces Inductor's names by plain Triton and simplifies what symbolic sizes leave behind."""

    def __init__(self, sizes: set[str], all_float32: bool) -> None:
        self.sizes = sizes
        self.all_float32 = all_float32
        self.defined: set[str] = set()

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        """Drops assertions on indices; a judge compares the values instead."""
        if called(node.value) in ("tl.device_assert", "tl.debug_barrier", "tl.assume"):
            return None
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Rewrites one call."""
        self.generic_visit(node)
        name = called(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to" and len(node.args) == 1:
            return self._cast(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "broadcast_to" and _is_number(node.func.value):
            return expression("tl.zeros((1, 1), tl.int32)")
        if name in plain.DIRECT:
            return self._mathematics(plain.DIRECT[name], node)
        if name in plain.DEFINED:
            target = plain.DEFINED[name]
            if target == "floor_divide" and self._is_size(node):
                return ast.BinOp(node.args[0], ast.FloorDiv(), node.args[1])
            self.defined.add(target)
            if (count := plain.arity(target)) is not None:
                node.args = node.args[:count]
            return self._mathematics(target, node)
        if name.startswith(("triton_helpers.", "libdevice.", "tl_math.", "tl.inline")):
            raise NotReadable(f"A kernel uses {name}, which has no plain form here.")
        if name in ("tl.load", "tl.store"):
            return _memory_access(node, name)
        if name == "tl.full":
            return _full(node)
        if name in plain.DIRECT.values():
            return self._mathematics(name, node)
        if name == "triton.language.div_rn":
            if self._is_size(node):
                return ast.BinOp(node.args[0], ast.Div(), node.args[1])
            node.func = expression("tl.div_rn")
        if name == "tl.broadcast_to" and "tl.dot" in ast.unparse(node.args[0]):
            return node.args[0]
        if name == "tl.broadcast_to" and _is_number(node.args[0]):
            return ast.Call(expression("tl.full"), [node.args[1], node.args[0], expression("tl.float32")], [])
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Drops a subscript that takes everything."""
        self.generic_visit(node)
        return node.value if ast.unparse(node.slice) == ":" else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Writes sums with their positive terms first, and drops factors that cancel."""
        self.generic_visit(node)
        if isinstance(node.op, ast.Add) and (extent := _at_least_one(node)) is not None:
            return extent
        if isinstance(node.op, ast.Mult) and called(node.left) == "tl.program_id" and ast.unparse(node.right) == "1":
            return node.left
        if (
            isinstance(node.op, ast.FloorDiv)
            and isinstance(node.left, ast.BinOp)
            and isinstance(node.left.op, ast.Mult)
        ):
            divisor = ast.unparse(node.right)
            if ast.unparse(node.left.right) == divisor:
                return node.left.left
            if ast.unparse(node.left.left) == divisor:
                return node.left.right
        if not all(_INDEX.fullmatch(name) or name in self.sizes for name in names_in(node)):
            return node
        if isinstance(node.op, ast.Mult):
            return _tidy_product(node, self.sizes)
        return _tidy_sum(node) if isinstance(node.op, ast.Add | ast.Sub) else node

    def _cast(self, node: ast.Call) -> ast.AST:
        assert isinstance(node.func, ast.Attribute)
        inner, kind = node.func.value, ast.unparse(node.args[0])
        if _is_number(inner) or self._is_size(inner):
            return inner
        if kind == "tl.int32" and all(_INDEX.fullmatch(name) or name in self.sizes for name in names_in(inner)):
            return inner
        if kind == "tl.float32":
            if (
                isinstance(inner, ast.Call)
                and ast.unparse(inner.func).endswith(".to")
                and ast.unparse(inner.args[0]) == kind
            ):
                return inner
            bare = inner.value if isinstance(inner, ast.Subscript) else inner
            if self.all_float32 and called(bare) in ("tl.sum", "tl.max", "tl.min"):
                return inner
        return node

    def _mathematics(self, name: str, node: ast.Call) -> ast.Call:
        """A call of `name`; numbers known at compile time become tensors, which functions of `tl` need."""
        arguments = list(node.args)
        if name.startswith("tl.") and name not in ("tl.maximum", "tl.minimum"):
            arguments = [self._as_tensor(a) if i == 0 else a for i, a in enumerate(arguments)]
        return ast.Call(expression(name), arguments, node.keywords)

    def _as_tensor(self, node: ast.expr) -> ast.expr:
        if self._is_size(node) or _is_number(node):
            return ast.Call(expression("tl.full"), [expression("[1]"), node, expression("tl.float32")], [])
        return node

    def _is_size(self, node: ast.AST) -> bool:
        """Whether only sizes and numbers go into an expression, so that it is known at compile time."""
        arguments = node.args if isinstance(node, ast.Call) else [node]
        parts = [part for argument in arguments for part in ast.walk(argument)]
        return (
            bool(parts)
            and all(
                (
                    part.id in self.sizes
                    if isinstance(part, ast.Name)
                    else not isinstance(part, ast.Call | ast.Subscript)
                )
                for part in parts
            )
            and any(isinstance(part, ast.Name) for part in parts)
        )


def _at_least_one(node: ast.BinOp) -> ast.expr | None:
    """The size in `1 * (1 >= size) + size * (size > 1)`, as the larger of one and a size is written.

    It stands in strides, where a size of zero means that there is no element to address.
    """
    if isinstance(node.right, ast.BinOp) and isinstance(node.right.op, ast.Mult):
        size = node.right.left
        text = ast.unparse(size)
        nested = text if isinstance(size, ast.Name) else f"({text})"
        if ast.unparse(node) == f"1 * (1 >= {text}) + {nested} * ({text} > 1)":
            return size
    return None


class _OneRowAxis(ast.NodeTransformer):
    """Drops the third axis of the grid from the number of a program along the second."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Rewrites one sum."""
        self.generic_visit(node)
        return node.left if ast.unparse(node.right) == "tl.program_id(2) * tl.num_programs(1)" else node


def _with_named_sizes(body: list[ast.stmt], sizes: set[str]) -> tuple[list[ast.stmt], list[str]]:
    """Gives a name to each quotient of sizes that occurs more than once."""
    found: Counter[str] = Counter()
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv) and names_in(node) <= sizes:
                found[ast.unparse(node)] += 1
    names: dict[str, str] = {}
    for text, count in found.items():
        if count > 1 and expression(text) and names_in(expression(text)):
            names[text] = f"quotient_{len(names) + 1}" if names else "quotient"
    if not names:
        return body, []

    class Naming(ast.NodeTransformer):
        def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
            text = ast.unparse(node)
            if text in names:
                return ast.Name(names[text], ast.Load())
            self.generic_visit(node)
            return node

    body = [Naming().visit(statement) for statement in body]
    named: list[ast.stmt] = [
        ast.AnnAssign(ast.Name(name, ast.Store()), expression("tl.constexpr"), expression(text), 1)
        for text, name in names.items()
    ]
    return named + body, list(names.values())


def _memory_access(node: ast.Call, name: str) -> ast.Call:
    position = 1 if name == "tl.load" else 2
    if len(node.args) > position:
        mask = node.args.pop(position)
        if not (isinstance(mask, ast.Constant) and mask.value is None):
            node.keywords.insert(0, ast.keyword("mask", mask))
    masked = any(keyword.arg == "mask" for keyword in node.keywords)
    node.keywords = [k for k in node.keywords if masked or k.arg != "other"]
    return node


def _full(node: ast.Call) -> ast.expr:
    """A tensor of one element with a number becomes the number, as do zeros like a tensor; zeros say so."""
    shape, value, kind = node.args
    if ast.unparse(shape).endswith(".shape") and ast.unparse(value) == "0":
        return value
    if isinstance(shape, ast.List) and _is_number(value) and ast.unparse(kind) != "tl.int1":
        if all(isinstance(e, ast.Constant) and e.value == 1 for e in shape.elts):
            return value
        if isinstance(value, ast.Constant) and value.value == 0:
            return ast.Call(expression("tl.zeros"), [shape, kind], [])
    return node


def _tidy_sum(node: ast.BinOp) -> ast.expr:
    """A sum of indices with products first, then names, then what is subtracted."""
    terms: list[tuple[bool, ast.expr]] = []

    def collect(part: ast.expr, negative: bool) -> None:
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Add | ast.Sub):
            collect(part.left, negative)
            collect(part.right, negative != isinstance(part.op, ast.Sub))
            return
        sign, bare = _signed(part)
        terms.append((negative != sign, bare))

    collect(node, False)
    if all(negative for negative, _ in terms):
        return node
    ordered = sorted(terms, key=lambda term: (term[0], isinstance(term[1], ast.Constant), -_factors(term[1])))
    result = ordered[0][1]
    for negative, term in ordered[1:]:
        result = ast.BinOp(result, ast.Sub() if negative else ast.Add(), term)
    return result


def _factors(node: ast.expr) -> int:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _factors(node.left) + _factors(node.right)
    return 1


def _tidy_product(node: ast.BinOp, sizes: set[str]) -> ast.expr:
    """A product of an index and sizes with the index first, except after a number."""
    factors: list[ast.expr] = []

    def collect(part: ast.expr) -> None:
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult):
            collect(part.left)
            collect(part.right)
        else:
            factors.append(part)

    collect(node)
    rank = {id(f): (not isinstance(f, ast.Constant | ast.UnaryOp), names_in(f) <= sizes) for f in factors}
    ordered = sorted(factors, key=lambda factor: rank[id(factor)])
    result = ordered[0]
    for factor in ordered[1:]:
        result = ast.BinOp(result, ast.Mult(), factor)
    return result


def _signed(node: ast.expr) -> tuple[bool, ast.expr]:
    """Splits a factor of -1 or a negative number off an integer product."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return isinstance(node.operand.value, int), node.operand if isinstance(node.operand.value, int) else node
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        negative, left = _signed(node.left)
        if negative:
            if isinstance(left, ast.Constant) and left.value == 1:
                return True, node.right
            return True, ast.BinOp(left, ast.Mult(), node.right)
    return False, node


class _FullShapes(ast.NodeTransformer):
    """Drops broadcasts of values that have the full shape already."""

    def __init__(self, body: list[ast.stmt], one_row: bool) -> None:
        self.full: set[str] = set()
        self.one_row = one_row
        for block in blocks_of(body):
            for statement in block:
                name = assigned_name(statement)
                if name and isinstance(statement, ast.Assign) and self._is_full(statement.value):
                    self.full.add(name)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Drops one broadcast."""
        self.generic_visit(node)
        return node.args[0] if called(node) == "tl.broadcast_to" and self._is_full(node.args[0]) else node

    def _is_full(self, node: ast.expr) -> bool:
        name = called(node)
        if name == "tl.load" and isinstance(node, ast.Call):
            masks = [names_in(k.value) for k in node.keywords if k.arg == "mask"]
            return bool(masks) and any(m.startswith("r") for m in masks[0]) and (self.one_row or "xmask" in masks[0])
        if name == "tl.broadcast_to" and isinstance(node, ast.Call) and isinstance(node.args[1], ast.List):
            return True
        if _STAYS.match(name) or _SHAPES_ONLY.match(name) or isinstance(node, ast.Subscript):
            return False
        if isinstance(node, ast.Name):
            return node.id in self.full
        return any(self._is_full(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))


def _has_effect(statement: ast.stmt) -> bool:
    return any(called(node).startswith(("tl.store", "tl.atomic")) for node in ast.walk(statement))


def _may_move(value: ast.expr) -> bool:
    if isinstance(value, ast.Compare) and re.search(r"\b(x|y|z|r\d_)index\b", ast.unparse(value)):
        return False
    if re.search(r"\b[xyz]offset\b|arange", ast.unparse(value)) and "program_id" not in ast.unparse(value):
        return False
    return not any(isinstance(node, ast.Call) and _STAYS.search(called(node)) for node in ast.walk(value))


def _signature(name: str, parameters: Sequence[str], constants: set[str], body: list[ast.stmt]) -> ast.FunctionDef:
    arguments = [ast.arg(p, expression("tl.constexpr") if p in constants else None) for p in parameters]
    listed = ast.arguments([], arguments, None, [], [], None, [])
    return ast.FunctionDef(name, listed, body, [], None, lineno=0)


def _helper_text(helper: ast.FunctionDef, name: str, rewriter: _Rewriter) -> str:
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
