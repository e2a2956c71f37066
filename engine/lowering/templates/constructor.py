"""Copies what a candidate needs of the task's own text: the constructor of Model and what it uses."""

from __future__ import annotations

import ast
import builtins
import re
import textwrap

from engine.lowering.templates.graph import Mismatch


class Constructor:
    """The texts of a task that its candidates repeat."""

    def __init__(self, source: str) -> None:
        """Finds them.

        Raises:
            Mismatch: the constructor uses something that cannot be copied.
        """
        self._source = source
        self._tree = ast.parse(source)
        self._imports: dict[str, str] = {}
        self._definitions: dict[str, ast.stmt] = {}
        for statement in self._tree.body:
            self._index(statement)
        model = self._definitions.get("Model")
        if not isinstance(model, ast.ClassDef):
            raise Mismatch("The task defines no class Model.")
        members = {member.name: member for member in model.body if isinstance(member, ast.FunctionDef)}
        copied = self._reached(members)
        self.methods = "\n\n".join(self._method(member) for member in copied)
        needed = self._needed(copied)
        self.imports = list(dict.fromkeys(self._imports[name] for name in needed if name in self._imports))
        kept = [statement for name, statement in self._definitions.items() if name in needed]
        self.definitions = [self._text(statement) for statement in dict.fromkeys(kept)]
        self.uses = frozenset(needed)

    def _index(self, statement: ast.stmt) -> None:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            for alias in statement.names:
                name = alias.asname or alias.name.split(".")[0]
                text = ast.unparse(statement)
                if len(statement.names) > 1:
                    one = f"{alias.name} as {alias.asname}" if alias.asname else alias.name
                    origin = f"from {statement.module} " if isinstance(statement, ast.ImportFrom) else ""
                    text = f"{origin}import {one}"
                self._imports[name] = text
        elif isinstance(statement, (ast.ClassDef, ast.FunctionDef)):
            self._definitions[statement.name] = statement
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets:
                for part in ast.walk(target):
                    if isinstance(part, ast.Name):
                        self._definitions[part.id] = statement

    def _reached(self, members: dict[str, ast.FunctionDef]) -> list[ast.FunctionDef]:
        """The constructor and the methods it calls on self."""
        reached: dict[str, ast.FunctionDef] = {}
        waiting = ["__init__"]
        while waiting:
            name = waiting.pop()
            if name in reached or name not in members:
                continue
            if name == "forward":
                raise Mismatch("The constructor of Model calls forward.")
            reached[name] = members[name]
            waiting += [
                node.attr
                for node in ast.walk(members[name])
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
            ]
        return list(reached.values())

    def _needed(self, methods: list[ast.FunctionDef]) -> set[str]:
        needed: set[str] = set()
        waiting: list[ast.AST] = list(methods)
        while waiting:
            for node in ast.walk(waiting.pop()):
                if not isinstance(node, ast.Name) or node.id in needed or node.id == "Model":
                    continue
                if node.id in self._imports or node.id in self._definitions:
                    needed.add(node.id)
                    if node.id in self._definitions:
                        waiting.append(self._definitions[node.id])
                elif not hasattr(builtins, node.id) and node.id in ("get_inputs", "get_init_inputs"):
                    raise Mismatch("The constructor of Model uses the task's inputs.")
        return needed

    def _text(self, statement: ast.stmt) -> str:
        decorators = getattr(statement, "decorator_list", [])
        first = min([statement.lineno, *(decorator.lineno for decorator in decorators)])
        lines = self._source.splitlines()[first - 1 : statement.end_lineno]
        return textwrap.dedent("\n".join(lines))

    def _method(self, method: ast.FunctionDef) -> str:
        text = re.sub(r"super\(\s*Model\s*,\s*self\s*\)", "super()", self._text(method))
        if any(isinstance(node, ast.Name) and node.id == "Model" for node in ast.walk(ast.parse(text))):
            raise Mismatch("The constructor of Model names its own class.")
        return text
