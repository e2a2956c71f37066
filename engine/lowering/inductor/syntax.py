"""Small operations on Python syntax trees that the rewriting of kernels is made of."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping


def expression(text: str) -> ast.expr:
    """Parses one expression."""
    return ast.parse(text, mode="eval").body


def names_in(node: ast.AST) -> set[str]:
    """Every name that occurs in a node."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def called(node: ast.AST) -> str:
    """The dotted name that a call calls, or nothing."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def stored_names(body: list[ast.stmt]) -> Counter[str]:
    """How often each name is assigned in a body, nested loops included."""
    return Counter(
        n.id
        for statement in body
        for n in ast.walk(statement)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    )


def read_names(body: list[ast.stmt]) -> Counter[str]:
    """How often each name is read in a body, nested loops included."""
    return Counter(
        n.id
        for statement in body
        for n in ast.walk(statement)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    )


def blocks_of(body: list[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """The body and the body of each nested statement."""
    yield body
    for statement in body:
        for part in ("body", "orelse"):
            nested = getattr(statement, part, None)
            if isinstance(nested, list) and nested:
                yield from blocks_of(nested)


class Substitution(ast.NodeTransformer):
    """Puts expressions in the place of names that are read."""

    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Replaces one name."""
        if isinstance(node.ctx, ast.Load) and node.id in self.values:
            return copy.deepcopy(self.values[node.id])
        return node


class Renaming(ast.NodeTransformer):
    """Gives names other names, read or assigned."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Renames one name."""
        node.id = self.names.get(node.id, node.id)
        return node


def substitute(body: list[ast.stmt], values: Mapping[str, ast.expr]) -> list[ast.stmt]:
    """A body with expressions in the place of names."""
    return [Substitution(values).visit(statement) for statement in body]


def assigned_name(statement: ast.stmt) -> str | None:
    """The name that a plain assignment to one name sets."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id
    return None


def remove_unused(body: list[ast.stmt], has_effect: Callable[[ast.stmt], bool]) -> None:
    """Removes, in place, assignments that nothing reads, until none is left."""
    changed = True
    while changed:
        changed = False
        reads = read_names(body)
        for block in blocks_of(body):
            for statement in list(block):
                targets = {
                    n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
                }
                own = read_names([statement])
                if not isinstance(statement, ast.Assign | ast.AugAssign) or has_effect(statement):
                    continue
                if all(reads[name] - own[name] == 0 for name in targets):
                    block.remove(statement)
                    changed = True


def inline_single_uses(body: list[ast.stmt], may_move: Callable[[ast.expr], bool], width: int) -> None:
    """Moves, in place, expressions that are read once to where they are read, while lines stay below `width`."""
    stores = stored_names(body)
    for depth, block in _blocks_with_depth(body, 1):
        changed = True
        while changed:
            changed = False
            reads = read_names(body)
            for position, statement in enumerate(block):
                name = assigned_name(statement)
                if name is None or stores[name] != 1 or reads[name] != 1:
                    continue
                assert isinstance(statement, ast.Assign)
                if may_move(statement.value) and _move(
                    block, position, name, statement.value, stores, width - 4 * depth
                ):
                    changed = True
                    break


def _blocks_with_depth(body: list[ast.stmt], depth: int) -> Iterator[tuple[int, list[ast.stmt]]]:
    yield depth, body
    for statement in body:
        nested = getattr(statement, "body", None)
        if isinstance(nested, list):
            yield from _blocks_with_depth(nested, depth + 1)


def _move(block: list[ast.stmt], position: int, name: str, value: ast.expr, stores: Counter[str], width: int) -> bool:
    sources = names_in(value)
    for later in range(position + 1, len(block)):
        statement = block[later]
        if name in read_names([statement]):
            if not isinstance(statement, ast.Assign | ast.Expr | ast.Return):
                return False
            moved = Substitution({name: value}).visit(copy.deepcopy(statement))
            if len(ast.unparse(moved)) > width:
                return False
            block[later] = moved
            del block[position]
            return True
        if any(stored in sources for stored in stored_names([statement])):
            return False
    return False
