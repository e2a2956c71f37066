"""What Triton would compile for a launch: argument types, constants, attributes and options as plain JSON.

The same rules as Triton's own launcher are used, since they are Triton's own functions; the recorder
encodes, the compile nursery decodes. Runs with and without the interpreter.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend
from triton.runtime import jit

Json = dict[str, Any]


class LaunchError(RuntimeError):
    """A launch that Triton or the device would refuse, in one sentence."""


class Specialiser:
    """Binds the arguments of one kernel's launches as Triton's launcher would."""

    def __init__(self, function: Callable[..., None], options: Mapping[str, Any], capability: int) -> None:
        """Takes the undecorated function and the keywords that `triton.jit` was given."""
        self.name = function.__name__
        signature = inspect.signature(function)
        skip = options.get("do_not_specialize") or ()
        skip_alignment = options.get("do_not_specialize_on_alignment") or ()
        self.parameters = [
            jit.KernelParam(
                index,
                parameter,
                index in skip or parameter.name in skip,
                index in skip_alignment or parameter.name in skip_alignment,
            )
            for index, parameter in enumerate(signature.parameters.values())
        ]
        self.names = [parameter.name for parameter in self.parameters]
        self._backend = make_backend(GPUTarget("cuda", capability, 32))
        self._bind = jit.create_function_from_signature(signature, self.parameters, self._backend)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], Json]:
        """Gives the bound arguments by name and the JSON that `decode` reads.

        Raises:
            LaunchError: for arguments that do not fit the kernel or are of no type Triton knows.
        """
        try:
            bound, specialization, options = self._bind(*args, **kwargs)
        except TypeError as error:
            text = str(error).replace("dynamic_func()", f"kernel {self.name}")
            raise LaunchError(text) from error
        known = type(self._backend.parse_options({})).__dataclass_fields__
        for option in options:
            if option not in known and option not in ("debug", "instrumentation_mode"):
                raise LaunchError(f"kernel {self.name} got the argument {option!r}, which it does not have")
        kinds = [item[0] for item in specialization]
        constants: list[Json] = []
        attributes: list[Json] = []
        for index, name in enumerate(self.names):
            _flatten_constants(bound[name], kinds[index], (index,), constants)
            if kinds[index] != "constexpr":
                _flatten_attributes(self._backend, specialization[index][1], (index,), attributes)
        return bound, {
            "signature": dict(zip(self.names, [_plain_type(kind) for kind in kinds], strict=True)),
            "constants": constants,
            "attributes": attributes,
            "options": {key: value for key, value in sorted(options.items()) if value is not None and _is_plain(value)},
        }


def _flatten_constants(value: Any, kind: Any, path: tuple[int, ...], into: list[Json]) -> None:
    if kind == "constexpr":
        into.append({"path": list(path), "value": encode_constant(value)})
    elif isinstance(kind, tuple):
        for index, (part, part_kind) in enumerate(zip(value, kind, strict=True)):
            _flatten_constants(part, part_kind, (*path, index), into)


def _flatten_attributes(backend: Any, key: Any, path: tuple[int, ...], into: list[Json]) -> None:
    if isinstance(key, str):
        values = [list(item) for item in backend.parse_attr(key)]
        if values:
            into.append({"path": list(path), "value": values})
    elif isinstance(key, tuple):
        for index, part in enumerate(key):
            _flatten_attributes(backend, part, (*path, index), into)


def _plain_type(kind: Any) -> Any:
    return [_plain_type(part) for part in kind] if isinstance(kind, tuple) else str(kind)


def _is_plain(value: Any) -> bool:
    return isinstance(value, bool | int | float | str)


def encode_constant(value: Any) -> Any:
    """A compile-time constant as JSON: plain values as they are, the rest as one-entry objects.

    Raises:
        LaunchError: for a value that cannot be written down.
    """
    if isinstance(value, tl.constexpr):
        return {"constexpr": encode_constant(value.value)}
    if isinstance(value, tl.dtype):
        return {"dtype": value.name}
    if value is None or _is_plain(value):
        return value if value not in (float("inf"), float("-inf")) and value == value else {"float": repr(value)}
    if isinstance(value, tuple | list):
        return {"tuple": [encode_constant(part) for part in value]}
    if hasattr(value, "fn") and hasattr(value.fn, "__qualname__"):
        return {"function": value.fn.__qualname__, "module": value.fn.__module__}
    raise LaunchError(f"a constexpr argument of type {type(value).__name__} cannot be compiled ahead of time")


def decode_constant(value: Any, function: Callable[[str, str], Any]) -> Any:
    """The opposite of `encode_constant`; `function` finds a kernel by module and qualified name."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = [(key, item) for key, item in value.items() if key != "module"]
    if kind == "constexpr":
        return tl.constexpr(decode_constant(content, function))
    if kind == "dtype":
        return tl.dtype(content)
    if kind == "float":
        return float(content)
    if kind == "tuple":
        return tuple(decode_constant(part, function) for part in content)
    return function(value["module"], content)


def decode_type(kind: Any) -> Any:
    """A signature entry as Triton wants it: lists from JSON are tuples again."""
    return tuple(decode_type(part) for part in kind) if isinstance(kind, list) else kind


def launch_key(kernel: str, specialization: Mapping[str, Any]) -> str:
    """Names what must be compiled: launches with the same key share one binary."""
    parts = {name: specialization[name] for name in ("signature", "constants", "attributes", "options")}
    return hashlib.sha256(json.dumps([kernel, parts], sort_keys=True).encode()).hexdigest()[:16]
