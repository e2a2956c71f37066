"""A process in which kernels are interpreted: answers one JSON request a line on its standard output."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from types import ModuleType
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch

from engine.judging.workers import emulation, libdevice, recorder


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answer(request: dict[str, Any], modules: dict[str, ModuleType]) -> dict[str, Any]:
    path = request["path"]
    if path not in modules:
        modules[path] = load(path)
    function = getattr(modules[path], request["call"])
    options = request["options"]
    if request["how"] == "sample":
        with recorder.sampling() as trace:
            result = function(*recorder.large_inputs(request["inputs"]), **options)
        return {"trace": trace.to_json(), "notes": trace.notes, "written": trace.written(result)}
    torch.manual_seed(0)
    inputs = []
    for entry in request["inputs"]:
        dtype = getattr(torch, entry["dtype"])
        made = torch.randn(entry["shape"]) if dtype.is_floating_point else torch.full(entry["shape"], -1)
        inputs.append(made.to(dtype))
    with recorder.recording() as launches:
        result = function(*inputs, **options)
    expected = eval(request["expected"], {"torch": torch, "x": inputs})
    error = (result.double() - expected.double()).abs().max().item()
    return {"launches": [launch.to_json() for launch in launches], "error": error, "dtype": str(result.dtype)}


def main() -> None:
    libdevice.install()
    emulation.install()
    emulation.enter()
    recorder.install(sys.argv[1])
    modules: dict[str, ModuleType] = {}
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line), modules)
        except Exception as error:
            reply = {"failure": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), flush=True)


main()
