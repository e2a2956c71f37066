"""Sizes and strides of the tensors in a call, as expressions of named sizes."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.lowering.inductor.arithmetic import tidy
from engine.lowering.inductor.symbolic import SymbolicTask
from engine.lowering.inductor.syntax import expression, substitute


@dataclass(slots=True)
class Tensor:
    """What is known of a tensor variable: its name in the text; sizes, strides and dtype where known."""

    name: str
    sizes: tuple[str, ...] | None = None
    strides: tuple[str, ...] | None = None
    dtype: str = ""


class Sizes:
    """Writes sizes in terms of their names, and compares them at both sets of values that the task has."""

    def __init__(self, task: SymbolicTask) -> None:
        self.symbols: dict[str, ast.expr] = {s: ast.Name(n, ast.Load()) for s, n in task.sizes.names.items()}
        named = zip(task.size_names, task.arguments, strict=False)
        first = {name.lower(): int(size.node.hint) for name, size in named}
        self.environments = [first, {name: task.second_values.get(name, value) for name, value in first.items()}]

    def define(self, name: str, value: ast.expr) -> None:
        """Lets `name` stand for an expression of sizes."""
        self.symbols[name] = self._substituted(value)

    def text(self, node: ast.expr) -> str:
        """An expression of sizes as text."""
        return ast.unparse(self._substituted(node))

    def texts(self, node: ast.expr) -> tuple[str, ...]:
        """The elements of a tuple of sizes as texts."""
        return tuple(self.text(e) for e in elements(node))

    def of_symbols(self, sizes: Sequence[Any]) -> tuple[str, ...]:
        """Symbolic sizes of a traced tensor as texts."""
        return tuple(self.text(expression(str(size))) for size in sizes)

    def equal(self, left: Sequence[str], right: Sequence[str], sizes: Sequence[str] | None = None) -> bool:
        """Whether two lists are equal for both sets of values; strides of dimensions of one do not count."""
        if len(left) != len(right):
            return False
        for environment in self.environments:
            for position, (a, b) in enumerate(zip(left, right, strict=True)):
                if sizes is not None and _value(sizes[position], environment) == 1:
                    continue
                if _value(a, environment) != _value(b, environment):
                    return False
        return True

    def largest(self, text: str) -> int:
        """The larger of an expression's two values."""
        return max(_value(text, environment) for environment in self.environments)

    def packed(self, tensor: Tensor) -> bool:
        """Whether a tensor of known form is contiguous."""
        assert tensor.sizes is not None and tensor.strides is not None
        return self.equal(tensor.strides, contiguous(tensor.sizes), tensor.sizes)

    def view(self, base: str, source: Tensor | None, form: Tensor, offset: str) -> str:
        """The text of a view of `base` that has the given form: plain where possible."""
        assert form.sizes is not None and form.strides is not None
        if source and source.sizes and source.strides and offset == "0":
            if self.equal(form.sizes, source.sizes) and self.equal(form.strides, source.strides, form.sizes):
                return base
            turned = Tensor("", source.sizes[::-1], source.strides[::-1])
            assert turned.sizes is not None and turned.strides is not None
            same_sizes = len(form.sizes) == 2 and self.equal(form.sizes, turned.sizes)
            if same_sizes and self.equal(form.strides, turned.strides, form.sizes):
                return f"{base}.t()"
            if self.packed(source) and self.packed(form) and self.equal([_count(form)], [_count(source)]):
                return f"{base}.view({', '.join(form.sizes)})"
        return f"{base}.as_strided({tuple_text(form.sizes)}, {tuple_text(form.strides)}, {offset})"

    def _substituted(self, node: ast.expr) -> ast.expr:
        changed: Any = substitute([ast.Expr(node)], self.symbols)[0]
        tidied: ast.expr = tidy(changed.value)
        return tidied


def elements(node: ast.expr) -> list[ast.expr]:
    """The elements of a tuple or list, or the expression itself."""
    return list(node.elts) if isinstance(node, ast.Tuple | ast.List) else [node]


def contiguous(sizes: Sequence[str]) -> tuple[str, ...]:
    """The strides of a contiguous tensor."""
    return tuple(" * ".join(f"({s})" for s in sizes[i + 1 :]) or "1" for i in range(len(sizes)))


def tuple_text(parts: Sequence[str]) -> str:
    """A tuple of expressions as text."""
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _value(text: str, environment: Mapping[str, Any]) -> int:
    return int(eval(text, {"__builtins__": {"max": max, "min": min}}, dict(environment)))


def _count(tensor: Tensor) -> str:
    return " * ".join(f"({size})" for size in tensor.sizes or ()) or "1"
