"""The lowering process: answers requests of `engine.lowering.client`, one JSON object a line, on an inherited socket.

Started as `python -m engine.lowering.server DESCRIPTOR PARENT`. Whatever torch and Triton print goes to the log that
the engine gave as standard output; answers go to the socket only.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any

from engine.lowering.functions import function_form
from engine.lowering.structure import Structure
from engine.tasks.functions import as_model

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Serves until the engine closes the socket or dies."""
    descriptor, parent = int(arguments[0]), int(arguments[1])
    _die_with(parent)
    with socket.socket(fileno=descriptor) as connection, connection.makefile("rw", encoding="utf-8") as stream:
        os.set_inheritable(descriptor, False)
        lowering = _Lowering()
        for line in stream:
            stream.write(json.dumps(lowering.answer(json.loads(line))) + "\n")
            stream.flush()
    return 0


def _die_with(parent: int) -> None:
    """Ends this process when its parent dies, also if that happened just now."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class _Lowering:
    """The structures of the task that was opened last."""

    def __init__(self) -> None:
        self.structures: dict[str, Structure] = {}

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            if request["do"] == "open":
                return self._open(request["source"], request["overrides"], request["arch"], request["dtype"])
            return self._render(request["structure"], request["parameters"])
        except Exception as error:
            return {"error": f"Lowering failed ({type(error).__name__}: {_first_line(error)})."}

    def _open(self, source: str, overrides: Mapping[str, Any], arch: str, dtype: str | None) -> dict[str, Any]:
        self.structures = {}
        reasons: list[str] = []
        form = function_form(source)
        # Inductor writes into arguments; templates only compute new values.
        for offer, functional in ((_inductor, False), (_templates, True)):
            try:
                found, problems = offer()(as_model(source, functional), overrides, arch, dtype)
            except Exception as error:
                reasons.append(
                    f"{offer.__name__.strip('_')}: it failed ({type(error).__name__}: {_first_line(error)})."
                )
                continue
            reasons += problems
            for structure in found:
                structure = structure if form is None else form.structure(structure, functional)
                self.structures.setdefault(structure.name, structure)
        return {"structures": [_summary(structure) for structure in self.structures.values()], "reasons": reasons}

    def _render(self, name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        structure = self.structures.get(name)
        if structure is None:
            return {"error": f"The task has no structure named {name}."}
        try:
            return {"text": structure.render(parameters)}
        except ValueError as error:
            return {"error": _first_line(error)}


_Offer = Callable[[str, Mapping[str, Any], str, str | None], tuple[list[Structure], list[str]]]


def _inductor() -> _Offer:
    from engine.lowering.inductor import structures

    return structures


def _templates() -> _Offer:
    if importlib.util.find_spec("engine.lowering.templates") is None:
        return lambda source, overrides, arch, dtype: ([], [])
    offer: _Offer = importlib.import_module("engine.lowering.templates").structures
    return offer


def _summary(structure: Structure) -> dict[str, Any]:
    return {
        "name": structure.name,
        "idea": structure.idea,
        "defaults": dict(structure.defaults),
        "choices": {name: list(values) for name, values in structure.choices.items()},
    }


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason given")[:300]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
