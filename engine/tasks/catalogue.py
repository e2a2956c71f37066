"""Finds tasks by name or path and reads what can be known of them without running them."""

from __future__ import annotations

import ast
import difflib
from importlib.resources import files
from pathlib import Path
from typing import Any

from engine.records import Case, Task
from engine.tasks.functions import CASE, FunctionTaskError, entry_of, is_function_task, read_cases

KERNELBENCH, FUNCTION = "kernelbench", "function"
"""The formats of tasks."""

MODULE_ENTRY = "ModelNew"
"""What a candidate defines for a task that is a module (KernelBench)."""


class TaskError(ValueError):
    """A task cannot be used or judged; the message says what is wrong, where, and what to do (exit code 2)."""


def builtin_tasks() -> list[Task]:
    """The tasks that come with Kernelgrove, by name."""
    folder = files("engine.tasks.builtin")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".py") and entry.name[0] != "_")
    return [read_task(folder.joinpath(name).read_text(), str(folder.joinpath(name))) for name in names]


def find_task(name: str) -> Task:
    """A task by its built-in name or by the path of its file.

    Raises:
        TaskError: there is no such task, or its file is not one.
    """
    path = Path(name)
    if path.suffix == ".py" or "/" in name:
        try:
            source = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise TaskError(f"the task {name} cannot be read: {reason}") from error
        return read_task(source, str(path.resolve()))
    known = {task.name: task for task in builtin_tasks()}
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else "give a path, or see: kernelgrove tasks"
        raise TaskError(f"there is no built-in task {name}; {hint}")
    return known[name]


def read_task(source: str, path: str) -> Task:
    """Reads a function task or a problem in the KernelBench format, without running it.

    Raises:
        TaskError: the text is not Python, or lacks a part that the format demands.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise TaskError(f"the task {path} is not valid Python{line}; correct it") from error
    small = _small(tree, path)
    try:
        form, cases = (FUNCTION, read_cases(tree, small)) if is_function_task(tree) else (KERNELBENCH, None)
    except FunctionTaskError as error:
        raise TaskError(f"the function task {path} cannot be read: {error}") from error
    if cases is None:
        _check_module(tree, path)
        cases = (Case(small_overrides=small),)
    for case in cases:
        if unknown := [key for key in (*case.overrides, *case.small_overrides) if key not in {*_assigned(tree), CASE}]:
            where = "SMALL" if unknown[0] in small else f"case {case.name}"
            raise TaskError(f"{where} in the task {path} replaces {unknown[0]}, which the module does not define")
    family = _constants(tree).get("FAMILY", "")
    return Task(Path(path).stem, family if isinstance(family, str) else "", form, path, source, cases)


def entry_point(task: Task) -> str:
    """The name of what a candidate for the task defines: a class, or for a function task a function."""
    return entry_of(ast.parse(task.source)) if task.format == FUNCTION else MODULE_ENTRY


def _check_module(tree: ast.Module, path: str) -> None:
    defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    cases = "CASES" in _assigned(tree)
    if cases and "Model" not in defined:
        raise TaskError(f"the task {path} defines CASES and no function reference; a function task needs both")
    if not defined & {"Model", "get_inputs", "get_init_inputs"}:
        raise TaskError(
            f"the task {path} defines neither class Model with get_inputs and get_init_inputs, as a KernelBench "
            "problem does, nor reference and CASES, as a function task does"
        )
    for needed in ("Model", "get_inputs", "get_init_inputs"):
        if needed not in defined:
            raise TaskError(f"the task {path} defines no {needed}; a KernelBench problem needs it at the top level")


def _small(tree: ast.Module, path: str) -> dict[str, Any]:
    small = _constants(tree).get("SMALL", {})
    if not isinstance(small, dict) or not all(isinstance(key, str) for key in small):
        raise TaskError(f"SMALL in the task {path} must be a dict from names of constants to values")
    return small


def _assigned(tree: ast.Module) -> set[str]:
    """The names that the module gives values to, outside its functions and classes."""
    own = [node for node in tree.body if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]
    nodes = [inner for node in own for inner in ast.walk(node)]
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _constants(tree: ast.Module) -> dict[str, Any]:
    """The values of top-level assignments of literals to single names."""
    values: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            try:
                values[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                continue
    return values
