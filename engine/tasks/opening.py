"""Runs a task's source and finds its parts: for processes that have torch, and may run what a person wrote.

A function task is opened as the module that `functions.as_model` makes of it. `catalogue` reads the same files
without running them.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from engine.tasks.domains import Domain, DomainError, read_domains
from engine.tasks.functions import CASE, FunctionTaskError, as_model


class TaskProblem(Exception):
    """The task cannot be judged; the message is one sentence about it."""


def load_module(source: str, overrides: Mapping[str, Any], name: str) -> types.ModuleType:
    """Executes a task's source as a fresh module and replaces its constants.

    Raises TaskProblem when it cannot be executed or lacks what a task needs.
    """
    filename = f"<{name}>"
    module = types.ModuleType(name)
    try:
        source = as_model(source)
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        exec(compile(source, filename, "exec"), module.__dict__)
    except SyntaxError as error:
        raise TaskProblem(f"has a syntax error in line {error.lineno}: {_one_line(error.msg)}") from error
    except FunctionTaskError as error:
        raise TaskProblem(f"is no function task: {_one_line(error)}") from error
    except Exception as error:
        raise TaskProblem(f"cannot be imported: {type(error).__name__}: {_one_line(error)}") from error
    module.__dict__.update(overrides)
    _renew(module, source, "DOMAINS")
    model = getattr(module, "Model", None)
    if not (isinstance(model, type) and issubclass(model, torch.nn.Module)):
        raise TaskProblem("defines no class Model that is a torch.nn.Module")
    if not callable(getattr(module, "get_inputs", None)):
        raise TaskProblem("defines no function get_inputs")
    return module


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a task declares of the arguments of its forward method.

    Attributes:
        names: the arguments, as many as there are inputs.
        domains: which values each of them takes.
        mutated: those that are outputs as well; None where the task does not say, so that what the reference
            changes counts.
    """

    names: tuple[str, ...]
    domains: tuple[Domain, ...]
    mutated: tuple[str, ...] | None


def declared_arguments(module: types.ModuleType, count: int) -> Arguments:
    """What the task declares of its `count` inputs.

    Raises:
        TaskProblem: it declares what does not exist.
    """
    parameters = list(inspect.signature(module.Model.forward).parameters.values())[1:]
    plain = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    names = [*plain[:count], *(f"input {index}" for index in range(len(plain), count))]
    declared = getattr(module, "MUTATES", [] if hasattr(module, "reference") and hasattr(module, CASE) else None)
    try:
        domains = read_domains(getattr(module, "DOMAINS", None), names)
    except DomainError as error:
        raise TaskProblem(f"declares no such domain: {_one_line(error)}") from error
    if declared is not None and (unknown := [name for name in declared if name not in names]):
        raise TaskProblem(f"says in MUTATES that {_one_line(unknown[0])} changes, which is no argument")
    return Arguments(tuple(names), tuple(domains), None if declared is None else tuple(declared))


def _renew(module: types.ModuleType, source: str, name: str) -> None:
    """Works out a declaration again, now that the constants it may use have been replaced."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            exec(compile(ast.Module([node], []), f"<{module.__name__}>", "exec"), module.__dict__)


def _one_line(problem: object) -> str:
    return " ".join(str(problem).split())[:300]
