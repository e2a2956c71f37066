"""Replaces what Inductor writes inside a kernel by plain Triton, one expression at a time."""

from __future__ import annotations

import ast
import re
from collections import Counter

from engine.lowering.inductor import plain
from engine.lowering.inductor.arithmetic import INDEX, at_least_one, is_number, tidy_product, tidy_sum
from engine.lowering.inductor.syntax import assigned_name, blocks_of, called, expression, names_in
from engine.lowering.inductor.wrapper import NotReadable

STAYS = re.compile(
    r"tl\.(load|store|sum|max|min|reduce|associative_scan|dot|atomic\w+|argmax|argmin)$|\w+_finish$|\w+_step$"
)


_SHAPES_ONLY = re.compile(r"tl\.(broadcast_to|reshape|trans|expand_dims)$")


class Rewriter(ast.NodeTransformer):
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
        if isinstance(node.func, ast.Attribute) and node.func.attr == "broadcast_to" and is_number(node.func.value):
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
        if name == "tl.reshape" and is_number(node.args[0]):
            return node.args[0]
        if name == "tl.broadcast_to" and self._is_size(node.args[0]):
            return node.args[0]
        if name == "tl.broadcast_to" and is_number(node.args[0]):
            return ast.Call(expression("tl.full"), [node.args[1], node.args[0], expression("tl.float32")], [])
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Drops a subscript that takes everything."""
        self.generic_visit(node)
        return node.value if ast.unparse(node.slice) == ":" else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Writes sums with their positive terms first, and drops factors that cancel."""
        self.generic_visit(node)
        if isinstance(node.op, ast.Add) and (extent := at_least_one(node)) is not None:
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
        if not all(INDEX.fullmatch(name) or name in self.sizes for name in names_in(node)):
            return node
        if isinstance(node.op, ast.Mult):
            return tidy_product(node, self.sizes)
        return tidy_sum(node) if isinstance(node.op, ast.Add | ast.Sub) else node

    def _cast(self, node: ast.Call) -> ast.AST:
        assert isinstance(node.func, ast.Attribute)
        inner, kind = node.func.value, ast.unparse(node.args[0])
        if is_number(inner) or self._is_size(inner):
            return inner
        if kind == "tl.int32" and all(INDEX.fullmatch(name) or name in self.sizes for name in names_in(inner)):
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
        if self._is_size(node) or is_number(node):
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


class OneRowAxis(ast.NodeTransformer):
    """Drops the third axis of the grid from the number of a program along the second."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Rewrites one sum."""
        self.generic_visit(node)
        return node.left if ast.unparse(node.right) == "tl.program_id(2) * tl.num_programs(1)" else node


def with_named_sizes(body: list[ast.stmt], sizes: set[str]) -> tuple[list[ast.stmt], list[str]]:
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
    if isinstance(shape, ast.List) and is_number(value) and ast.unparse(kind) != "tl.int1":
        if all(isinstance(e, ast.Constant) and e.value == 1 for e in shape.elts):
            return value
        if isinstance(value, ast.Constant) and value.value == 0:
            return ast.Call(expression("tl.zeros"), [shape, kind], [])
    return node


class FullShapes(ast.NodeTransformer):
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
        if STAYS.match(name) or _SHAPES_ONLY.match(name) or isinstance(node, ast.Subscript):
            return False
        if isinstance(node, ast.Name):
            return node.id in self.full
        return any(self._is_full(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))
