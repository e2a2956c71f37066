"""Every structure of every built-in task gives the right answers, and each family compiles for a GPU."""

from __future__ import annotations

import ast
import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from engine.lowering.structure import Structure
from engine.lowering.templates import structures
from engine.lowering.templates.tracing import small_form

HERE = Path(__file__).parent
BUILTIN = Path(__file__).parents[4] / "engine" / "tasks" / "builtin"
TASKS = sorted({path.stem for path in BUILTIN.glob("*.py")} - {"__init__", "attention_head", "max_pool"})
FAMILIES = {
    "attention_head": "attention/",
    "bias_gelu_residual": "elementwise/",
    "cross_entropy": "loss/",
    "layer_norm": "layer_norm/",
    "linear_gelu": "matmul/",
    "max_pool": "pooling/",
    "residual_rms_norm": "rms_norm/",
    "row_norm": "reduction/",
    "softmax": "softmax/",
    "swiglu": "elementwise/",
}


def run_worker(script: str, request: Mapping[str, Any], interpret: bool) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"OMP_NUM_THREADS": "1", **({"TRITON_INTERPRET": "1"} if interpret else {})}
    done = subprocess.run(
        [sys.executable, HERE / script], input=json.dumps(request), capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


def faults(source: str, small: Mapping[str, object], modules: Mapping[str, str]) -> dict[str, str]:
    answers = run_worker("interpret_modules.py", {"source": source, "small": small, "modules": modules}, True)
    assert answers.keys() == modules.keys()
    return {name: fault for name, fault in answers.items() if fault}


def with_neighbours(found: list[Structure], count: int) -> dict[str, str]:
    """Every structure with its defaults, and with parameters that local steps may reach."""
    chance = random.Random(0)
    modules: dict[str, str] = {}
    for structure in found:
        modules[structure.name] = structure.render(structure.defaults)
        made = 0
        for _ in range(40):
            changed = dict(structure.defaults)
            for name in chance.sample(sorted(changed), min(2, len(changed))):
                changed[name] = chance.choice(structure.choices[name])
            try:
                text = structure.render(changed)
            except ValueError as error:
                assert str(error).endswith("."), error
                continue
            modules[f"{structure.name} {changed}"] = text
            made += 1
            if made == count:
                break
        else:
            pytest.fail(f"{structure.name} refuses nearly all of its own choices")
    return modules


@pytest.mark.parametrize("task", TASKS)
def test_every_structure_and_two_neighbours_are_right_at_the_small_form(task: str) -> None:
    source = (BUILTIN / f"{task}.py").read_text()
    found, _ = structures(source, {}, "sm_90")
    assert len({structure.name for structure in found}) == len(found) >= 2
    assert all(structure.name.startswith(FAMILIES[task]) for structure in found)
    for structure in found:
        assert structure.defaults.keys() == structure.choices.keys()
        assert all(value in structure.choices[name] for name, value in structure.defaults.items()), structure.name
    small = small_form(source)
    assert small is not None
    assert faults(source, small, with_neighbours(found, 2)) == {}


@pytest.mark.parametrize(
    ("task", "small"),
    [
        ("softmax", {"ROWS": 3, "COLUMNS": 9001}),
        ("layer_norm", {"ROWS": 3, "COLUMNS": 5003}),
        ("residual_rms_norm", {"ROWS": 2, "COLUMNS": 8192}),
        ("row_norm", {"ROWS": 3, "COLUMNS": 12345}),
        ("cross_entropy", {"ROWS": 5, "CLASSES": 9001}),
    ],
)
def test_rows_longer_than_one_block_are_right(task: str, small: dict[str, int]) -> None:
    source = (BUILTIN / f"{task}.py").read_text()
    found, _ = structures(source, {}, "sm_90")
    assert faults(source, small, {structure.name: structure.render(structure.defaults) for structure in found}) == {}


@pytest.mark.parametrize("task", TASKS)
def test_one_structure_compiles_for_the_target_without_spills(task: str) -> None:
    source = (BUILTIN / f"{task}.py").read_text()
    found, _ = structures(source, {}, "sm_90")
    modules = {found[0].name: found[0].render(found[0].defaults)}
    answers = run_worker("compile_modules.py", {"source": source, "arch": "sm_90", "modules": modules}, False)
    for kernels in answers.values():
        assert isinstance(kernels, list), kernels
        assert kernels
        for kernel in kernels:
            assert kernel["reg"] <= 255
            assert kernel["local"] == kernel["stack"] == 0, kernel
            assert kernel["dynamic_shared"] <= 227 * 1024


@pytest.mark.parametrize("task", TASKS)
def test_modules_stand_alone_and_explain_each_kernel(task: str) -> None:
    source = (BUILTIN / f"{task}.py").read_text()
    found, _ = structures(source, {}, "sm_90")
    for structure in found:
        text = structure.render(structure.defaults)
        assert structure.render(structure.defaults) == text
        tree = ast.parse(text)
        imported = {
            alias.name.split(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in (node.names if isinstance(node, ast.Import) else [ast.alias(node.module or "")])
        }
        assert imported <= {"torch", "triton", "math"}
        lines = text.splitlines()
        for place, line in enumerate(lines):
            assert len(line) <= 120, line
            if line == "@triton.jit" and not lines[place + 1].startswith(("def tanh", "def log1p", "def expm1")):
                assert lines[place - 1].startswith("# "), structure.name
