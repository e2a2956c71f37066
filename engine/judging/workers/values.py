"""Nested values as JSON beside a list of tensors, so that no side ever unpickles what another sent."""

from __future__ import annotations

import math
from typing import Any

import torch


class UnsupportedValue(TypeError):
    """A value that cannot travel between judge and contestant."""


def flatten(value: Any, tensors: list[torch.Tensor]) -> Any:
    """The JSON form of `value`; its tensors are appended to `tensors` and stand in it by number.

    Raises UnsupportedValue for anything but tensors, numbers, text, None, dtypes, devices and
    lists, tuples and dicts of them.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return {"$tensor": len(tensors) - 1}
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": str(float(value))}
    if isinstance(value, torch.Size):
        return {"$size": list(value)}
    if isinstance(value, list):
        return [flatten(item, tensors) for item in value]
    if isinstance(value, tuple):
        return {"$tuple": [flatten(item, tensors) for item in value]}
    if isinstance(value, dict):
        return {"$dict": [[flatten(key, tensors), flatten(item, tensors)] for key, item in value.items()]}
    if isinstance(value, torch.dtype):
        return {"$dtype": dtype_name(value)}
    if isinstance(value, torch.device):
        return {"$device": str(value)}
    raise UnsupportedValue(f"a value of type {type(value).__name__}")


def unflatten(form: Any, tensors: list[torch.Tensor]) -> Any:
    """The value that `flatten` wrote as `form`, with `tensors` in their places."""
    if isinstance(form, list):
        return [unflatten(item, tensors) for item in form]
    if not isinstance(form, dict):
        return form
    ((kind, content),) = form.items()
    if kind == "$tensor":
        return tensors[content]
    if kind == "$float":
        return float(content)
    if kind == "$size":
        return torch.Size(content)
    if kind == "$tuple":
        return tuple(unflatten(item, tensors) for item in content)
    if kind == "$dict":
        return {unflatten(key, tensors): unflatten(item, tensors) for key, item in content}
    if kind == "$dtype":
        return dtype_of(content)
    if kind == "$device":
        return torch.device(content)
    raise UnsupportedValue(f"a value of kind {kind}")


def count_tensors(form: Any) -> int:
    """How many tensors a flattened value holds."""
    if isinstance(form, list):
        return sum(map(count_tensors, form))
    if not isinstance(form, dict):
        return 0
    ((kind, content),) = form.items()
    return 1 if kind == "$tensor" else count_tensors(content) if kind in ("$tuple", "$dict") else 0


def same_structure(one: Any, other: Any) -> bool:
    """Whether two flattened values nest alike and agree in all but their tensors; a tuple is as good as a list."""
    if isinstance(one, dict) and "$tuple" in one:
        one = one["$tuple"]
    if isinstance(other, dict) and "$tuple" in other:
        other = other["$tuple"]
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_structure, one, other))
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        if "$dict" in one:
            mine, theirs = one["$dict"], other["$dict"]
            return len(mine) == len(theirs) and all(
                a[0] == b[0] and same_structure(a[1], b[1]) for a, b in zip(mine, theirs, strict=True)
            )
        return bool(one == other)
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-4)
    return type(one) is type(other) and bool(one == other)


def describe_structure(form: Any) -> str:
    """A short form for people: `tensor`, `(tensor, tensor)`, `{loss: tensor}`."""
    if isinstance(form, list):
        return "[" + ", ".join(map(describe_structure, form)) + "]"
    if isinstance(form, dict):
        ((kind, content),) = form.items()
        if kind == "$tuple":
            return "(" + ", ".join(map(describe_structure, content)) + ")"
        if kind == "$dict":
            return "{" + ", ".join(f"{key}: {describe_structure(item)}" for key, item in content) + "}"
        return str(kind).removeprefix("$")
    return type(form).__name__


def dtype_name(dtype: torch.dtype) -> str:
    """`float32` for torch.float32."""
    return str(dtype).removeprefix("torch.")


def dtype_of(name: str) -> torch.dtype:
    """torch.float32 for `float32`; UnsupportedValue for a name that torch does not have."""
    dtype = getattr(torch, str(name), None)
    if not isinstance(dtype, torch.dtype):
        raise UnsupportedValue(f"a dtype named {name!r}")
    return dtype
