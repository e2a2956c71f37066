"""Function tasks in the lowering process: lowered as a module, written as a function."""

from __future__ import annotations

import ast
import copy
import re
import textwrap
from dataclasses import dataclass, replace

from engine.lowering.structure import Parameters, Structure
from engine.tasks.functions import entry_of, is_function_task, mutated_by

_CLASS = "class ModelNew(nn.Module):\n"


@dataclass(frozen=True, slots=True)
class FunctionForm:
    """How a candidate for a function task is written.

    Attributes:
        head: the line that begins the function, with the reference's signature.
        mutated: the arguments that it changes in place.
    """

    head: str
    mutated: tuple[str, ...]

    def structure(self, structure: Structure, functional: bool) -> Structure:
        """The structure with its text as a function.

        Args:
            structure: of the task as a module.
            functional: whether that module returns new values of the mutated arguments, after its results.
        """
        functional = functional and bool(self.mutated)
        idea = structure.idea
        if functional:
            idea = f"{idea.rstrip('.')}; {' and '.join(self.mutated)} copied into place."
        return replace(structure, idea=idea, render=_Renderer(self, structure, functional))


def function_form(source: str) -> FunctionForm | None:
    """The form that candidates for a task have; None where they are modules."""
    tree = ast.parse(source)
    if not is_function_task(tree):
        return None
    reference = next(n for n in reversed(tree.body) if isinstance(n, ast.FunctionDef) and n.name == "reference")
    return FunctionForm(f"def {entry_of(tree)}({_signature(reference)}):", mutated_by(tree))


def _signature(reference: ast.FunctionDef) -> str:
    """The parameters with what of their annotations and defaults means the same in another module."""
    arguments = copy.deepcopy(reference.args)
    for argument in (*arguments.posonlyargs, *arguments.args):
        names = (
            {n.id for n in ast.walk(argument.annotation) if isinstance(n, ast.Name)} if argument.annotation else set()
        )
        if not names <= {"torch", "int", "float", "bool", "str", "tuple", "list"}:
            argument.annotation = None
    if not all(isinstance(default, ast.Constant) for default in arguments.defaults):
        arguments.defaults = []
    return ast.unparse(arguments)


@dataclass(frozen=True, slots=True)
class _Renderer:
    form: FunctionForm
    structure: Structure
    functional: bool

    def __call__(self, parameters: Parameters) -> str:
        """The text of a module that defines the function. Raises ValueError as the structure does."""
        above, found, below = self.structure.render(parameters).partition(_CLASS)
        text = textwrap.dedent(below)
        body = ast.parse(text).body
        forward = body[0] if found and len(body) == 1 else None
        if not isinstance(forward, ast.FunctionDef) or "self." in text:
            raise ValueError("The lowered module holds more than a forward method, and cannot be a function.")
        lines = text.rstrip().splitlines()[forward.body[0].lineno - 1 :]
        if self.functional:
            lines = [*lines[: forward.body[-1].lineno - forward.body[0].lineno], *self._put_into_place(forward)]
        function = "\n".join([self.form.head, *lines]) + "\n"
        for name in self.form.mutated:
            # A copy that is contiguous would be changed in the argument's place.
            function = function.replace(f"    {name} = {name}.contiguous()\n", f"    assert {name}.is_contiguous()\n")
        if not re.search(r"\bnn\.", above + function):
            above = above.replace("from torch import nn\n", "")
        return above + function

    def _put_into_place(self, forward: ast.FunctionDef) -> list[str]:
        """The end of the function: the last results are copied into the arguments that they are the new values of."""
        last = forward.body[-1]
        assert isinstance(last, ast.Return) and last.value is not None
        values = list(map(ast.unparse, last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]))
        kept = len(values) - len(self.form.mutated)
        copies = [f"    {name}.copy_({new})" for name, new in zip(self.form.mutated, values[kept:], strict=True)]
        return [*copies, f"    return {', '.join(values[:kept])}"] if kept else copies
