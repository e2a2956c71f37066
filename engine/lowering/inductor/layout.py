"""Lays out generated statements: lines that are too long are broken after parentheses and before operators."""

from __future__ import annotations

import ast
from collections.abc import Sequence

LINE = 110
"""Longest line that is written where it can be broken, in characters."""


def statements(body: Sequence[ast.stmt], indent: str) -> list[str]:
    """Lines of a body, each with its indentation."""
    lines: list[str] = []
    for statement in body:
        ast.fix_missing_locations(statement)
        if isinstance(statement, ast.For | ast.If) and not statement.orelse:
            head = ast.unparse(statement).splitlines()[0]
            lines += [f"{indent}{head}", *statements(statement.body, indent + "    ")]
            continue
        text = ast.unparse(statement)
        value = getattr(statement, "value", None)
        if len(indent) + len(text) <= LINE or not isinstance(value, ast.Call | ast.BinOp):
            lines += [f"{indent}{line}" for line in text.splitlines()]
            continue
        target = text[: len(text) - len(ast.unparse(value))]
        broken = _broken(value, indent)
        lines += [f"{indent}{target}{broken[0]}", *broken[1:]]
    return lines


def call(head: str, parts: Sequence[str], tail: str, indent: str) -> list[str]:
    """A call or signature with its arguments on lines of their own, as many to a line as fit."""
    lines, line = [], ""
    for part in parts:
        if line and len(indent) + 4 + len(line) + len(part) + 2 > LINE:
            lines.append(f"{indent}    {line}")
            line = ""
        line += f"{' ' if line else ''}{part},"
        if "\n" in part:
            lines.append(f"{indent}    {line}")
            line = ""
    if line:
        lines.append(f"{indent}    {line}")
    return [f"{indent}{head}", *lines, f"{indent}{tail}"]


def _broken(node: ast.expr, indent: str) -> list[str]:
    """Lines of an expression; the first has no indentation because something stands before it."""
    inner = indent + "    "
    if isinstance(node, ast.Call):
        parts = [_part(argument, "", inner) for argument in node.args]
        parts += [_part(keyword.value, f"{keyword.arg}=", inner) for keyword in node.keywords]
        lines = call(f"{ast.unparse(node.func)}(", parts, ")", indent)
        return [lines[0].lstrip(), *"\n".join(lines[1:]).splitlines()]
    assert isinstance(node, ast.BinOp)
    lines, line = [], ""
    for term in _terms(node):
        if line and len(inner) + len(line) + len(term) + 1 > LINE:
            lines.append(f"{inner}{line}")
            line = ""
        line += f"{' ' if line else ''}{term}"
    return ["(", *lines, f"{inner}{line}", f"{indent})"]


def _part(node: ast.expr, prefix: str, indent: str) -> str:
    text = prefix + ast.unparse(node)
    if len(indent) + len(text) + 1 <= LINE or not isinstance(node, ast.Call | ast.BinOp):
        return text
    return prefix + "\n".join(_broken(node, indent))


def _flat_offset(node: ast.BinOp) -> ast.BinOp:
    """`pointer + (a + b)` as `pointer + a + b`, which is the same address."""
    right = node.right
    is_pointer = isinstance(node.left, ast.Name) and node.left.id.endswith("_ptr") and isinstance(node.op, ast.Add)
    if not (is_pointer and isinstance(right, ast.BinOp) and isinstance(right.op, ast.Add | ast.Sub)):
        return node
    first = _flat_offset(ast.BinOp(node.left, ast.Add(), right.left))
    return ast.BinOp(first, right.op, right.right)


def _terms(node: ast.BinOp) -> list[str]:
    """The operands of a chain of one kind of operator, each after the first with its operator."""
    kinds: tuple[type[ast.operator], ...] = (
        (ast.Add, ast.Sub) if isinstance(node.op, ast.Add | ast.Sub) else (type(node.op),)
    )
    signs = {
        ast.Add: "+",
        ast.Sub: "-",
        ast.Mult: "*",
        ast.BitAnd: "&",
        ast.BitOr: "|",
        ast.Div: "/",
        ast.FloorDiv: "//",
    }
    if type(node.op) not in signs:
        return [ast.unparse(node)]
    node = _flat_offset(node)
    terms: list[str] = []
    current: ast.expr = node
    while isinstance(current, ast.BinOp) and isinstance(current.op, kinds):
        # Unparsed together with its operator, the right side keeps the parentheses that it needs.
        probe = ast.unparse(ast.BinOp(ast.Name("_", ast.Load()), current.op, current.right))
        terms.append(probe[2:])
        current = current.left
    probe = ast.unparse(ast.BinOp(current, node.op, ast.Name("_", ast.Load())))
    terms.append(probe[: -len(f" {signs[type(node.op)]} _")])
    return terms[::-1]
