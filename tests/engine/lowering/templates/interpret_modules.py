"""Run as a script under TRITON_INTERPRET=1: judges candidate modules at a task's small form.

Standard input: JSON with `source`, `small` and `modules` (name to text). Standard output: JSON, for each
name "" or what is wrong. Not a test itself, since the interpreter must be chosen before triton is imported.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
import traceback
import types
from pathlib import Path
from typing import Any

import torch

SEEDS = (0, 1)


def load(text: str, folder: Path, name: str) -> types.ModuleType:
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def flat(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)


def exact(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def judged(task: types.ModuleType, candidate: types.ModuleType) -> str:
    for seed in SEEDS:
        torch.manual_seed(seed)
        reference = task.Model(*task.get_init_inputs())
        model = candidate.ModelNew(*task.get_init_inputs())
        model.load_state_dict(reference.state_dict())
        inputs = task.get_inputs()
        kept = [tensor.clone() for tensor in inputs]
        with torch.no_grad():
            found = flat(model(*inputs))
            if any(not torch.equal(tensor, copy) for tensor, copy in zip(inputs, kept, strict=True)):
                return "an input was changed"
            half = any(tensor.dtype in (torch.float16, torch.bfloat16) for tensor in inputs)
            expected = flat(reference.double()(*(exact(tensor) for tensor in inputs)))
        if len(found) != len(expected):
            return f"{len(found)} outputs instead of {len(expected)}"
        for place, (got, wanted) in enumerate(zip(found, expected, strict=True)):
            if got.shape != wanted.shape:
                return f"output {place} has shape {tuple(got.shape)} instead of {tuple(wanted.shape)}"
            difference = float((got.double() - wanted.double()).norm() / wanted.double().norm().clamp_min(1e-30))
            if not difference <= (3e-3 if half else 1e-5):
                return f"output {place} is off by {difference:.2e} with seed {seed}"
    return ""


def main() -> None:
    request = json.load(sys.stdin)
    task = types.ModuleType("task")
    exec(request["source"], task.__dict__)
    task.__dict__.update(request["small"])
    answers: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, text) in enumerate(request["modules"].items()):
            try:
                answers[name] = judged(task, load(text, Path(folder), f"candidate_{number}"))
            except Exception:
                answers[name] = traceback.format_exc()
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
