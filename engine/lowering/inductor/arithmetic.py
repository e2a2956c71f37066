"""Arithmetic of indices and sizes, as people write it."""

from __future__ import annotations

import ast
import copy
import re

from engine.lowering.inductor.syntax import called, names_in

INDEX = re.compile(r"[xyz]\d+|r\d_\d+|([xyz]|r\d_)index")


def is_number(node: ast.expr) -> bool:
    """Whether an expression is a number, infinity included."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return is_number(node.operand)
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float)
    return isinstance(node, ast.Call) and called(node) == "float" and isinstance(node.args[0], ast.Constant)


def at_least_one(node: ast.BinOp) -> ast.expr | None:
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


def tidy_sum(node: ast.BinOp) -> ast.expr:
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


def tidy_product(node: ast.BinOp, sizes: set[str]) -> ast.expr:
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


def tidy(node: ast.expr) -> ast.expr:
    """Sums inside an expression of sizes with what is subtracted last."""

    class Tidying(ast.NodeTransformer):
        def visit_BinOp(self, part: ast.BinOp) -> ast.AST:
            self.generic_visit(part)
            if isinstance(part.op, ast.Add) and (extent := at_least_one(part)) is not None:
                return extent
            return tidy_sum(part) if isinstance(part.op, ast.Add | ast.Sub) else part

    tidied: ast.expr = Tidying().visit(copy.deepcopy(node))
    return tidied
