"""Runs lowered modules in Triton's interpreter: `python interpreting_worker.py FOLDER TASK_FILE...`.

Compares every FOLDER/TASK/*.py with the task's Model at the small form, with the same parameters, and prints a JSON
object: for each module its largest relative error, or what went wrong.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import importlib.util
import json
import sys
import traceback
import types
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree


def main(folder: Path, files: list[Path]) -> None:
    results: dict[str, Any] = {}
    for file in files:
        task = load(file)
        vars(task).update(vars(task).get("SMALL", {}))
        for module in sorted((folder / file.stem).glob("*.py")):
            name = f"{file.stem}/{module.stem}"
            try:
                results[name] = compare(task, load(module))
            except Exception:
                results[name] = traceback.format_exc(limit=-3)
    print(json.dumps(results))


def load(path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compare(task: types.ModuleType, candidate: types.ModuleType) -> float:
    torch.manual_seed(0)
    reference = task.Model(*task.get_init_inputs())
    torch.manual_seed(1)
    model = candidate.ModelNew(*task.get_init_inputs())
    model.load_state_dict(reference.state_dict())
    worst = 0.0
    for _ in range(2):
        inputs = task.get_inputs()
        with torch.no_grad():
            wanted, shape = pytree.tree_flatten(reference(*pytree.tree_map(clone, inputs)))
            given, other_shape = pytree.tree_flatten(model(*pytree.tree_map(clone, inputs)))
        assert shape == other_shape
        # Buffers count as outputs: a batch norm in training must have updated its statistics.
        wanted += list(reference.state_dict().values())
        given += list(model.state_dict().values())
        worst = max([worst, *(difference(a, b) for a, b in zip(given, wanted, strict=True))])
    return worst


def clone(value: object) -> object:
    return value.clone() if isinstance(value, torch.Tensor) else value


def difference(given: torch.Tensor, wanted: torch.Tensor) -> float:
    assert given.shape == wanted.shape and given.dtype == wanted.dtype
    if not wanted.is_floating_point() or wanted.numel() < 2:
        return float((given.double() - wanted.double()).abs().max()) / max(1.0, float(wanted.abs().max()))
    spread = (wanted.double() - wanted.double().mean()).norm().clamp_min(1e-30)
    return float((given.double() - wanted.double()).norm() / spread)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(argument) for argument in sys.argv[2:]])
