"""Runs a task's source and finds its parts: for processes that have torch, and may run what a person wrote.

`catalogue` reads the same files without running them.
"""

from __future__ import annotations

import linecache
import types
from collections.abc import Mapping
from typing import Any

import torch


class TaskProblem(Exception):
    """The task cannot be judged; the message is one sentence about it."""


def load_module(source: str, overrides: Mapping[str, Any], name: str) -> types.ModuleType:
    """Executes a task's source as a fresh module and replaces its constants.

    Raises TaskProblem when it cannot be executed or lacks what a task needs.
    """
    filename = f"<{name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    module = types.ModuleType(name)
    try:
        exec(compile(source, filename, "exec"), module.__dict__)
    except SyntaxError as error:
        raise TaskProblem(f"has a syntax error in line {error.lineno}: {_one_line(error.msg)}") from error
    except Exception as error:
        raise TaskProblem(f"cannot be imported: {type(error).__name__}: {_one_line(error)}") from error
    module.__dict__.update(overrides)
    model = getattr(module, "Model", None)
    if not (isinstance(model, type) and issubclass(model, torch.nn.Module)):
        raise TaskProblem("defines no class Model that is a torch.nn.Module")
    if not callable(getattr(module, "get_inputs", None)):
        raise TaskProblem("defines no function get_inputs")
    return module


def _one_line(problem: object) -> str:
    return " ".join(str(problem).split())[:300]
