"""Makes the arguments of a function task's open case, in the order of the reference's parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from engine.tasks.domains import Domain, read_domains


class ArgumentError(ValueError):
    """A case does not make the arguments that the reference takes; the message says which."""


def make(reference: Callable[..., Any], case: str, inputs: Any, declared: Any) -> list[Any]:
    """The arguments of one case.

    Args:
        reference: the task's function.
        case: the case's name.
        inputs: what the case says of them: a function that makes them, or by name `(dtype, size, ...)` for a
            tensor that is drawn at random, and anything else as it is.
        declared: the task's DOMAINS, None where it has none.

    Raises:
        ArgumentError, DomainError: this makes no arguments.
    """
    parameters = inspect.signature(reference).parameters
    given = inputs() if callable(inputs) else inputs
    if isinstance(given, list | tuple):
        if len(given) > len(parameters):
            raise ArgumentError(f"case {case} makes {len(given)} arguments and reference takes {len(parameters)}")
        given = dict(zip(parameters, given, strict=False))
    if not isinstance(given, Mapping):
        raise ArgumentError(f"case {case} must make a dict or a list of arguments")
    if unknown := [name for name in given if name not in parameters]:
        raise ArgumentError(f"case {case} makes {unknown[0]}, which is no parameter of reference")
    if missing := [n for n, p in parameters.items() if n not in given and p.default is inspect.Parameter.empty]:
        raise ArgumentError(f"case {case} makes no {missing[0]}, which reference needs")
    domains = read_domains(declared, list(parameters))
    return [
        _argument(name, given[name], domain) if name in given else parameter.default
        for (name, parameter), domain in zip(parameters.items(), domains, strict=True)
    ]


def _argument(name: str, described: Any, domain: Domain) -> Any:
    dtype = getattr(torch, str(described[0]), None) if isinstance(described, tuple | list) and described else None
    if not isinstance(dtype, torch.dtype):
        return described
    if not all(isinstance(size, int) for size in described[1:]):
        raise ArgumentError(f"the shape of {name} holds something that is no whole number")
    return domain.random(tuple(described[1:]), dtype)
