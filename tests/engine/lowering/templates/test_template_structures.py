"""Every structure of every built-in task gives the right answers, and each family compiles for a GPU."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

from engine.lowering.structure import Structure
from engine.lowering.templates import structures
from engine.lowering.templates.tracing import small_form
from tests.engine.lowering.templates.checking import Request, run_worker, with_neighbours

BUILTIN = Path(__file__).parents[4] / "engine" / "tasks" / "builtin"
# Function tasks become modules before templates see them.
TASKS = sorted(path.stem for path in BUILTIN.glob("*.py") if "class Model" in path.read_text())
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


LONG_ROWS = {
    "softmax": {"ROWS": 3, "COLUMNS": 9001},
    "layer_norm": {"ROWS": 3, "COLUMNS": 5003},
    "residual_rms_norm": {"ROWS": 2, "COLUMNS": 8192},
    "row_norm": {"ROWS": 3, "COLUMNS": 12345},
    "cross_entropy": {"ROWS": 5, "CLASSES": 9001},
    "bias_gelu_residual": {"ROWS": 7, "COLUMNS": 2100},
}


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    return {task: (BUILTIN / f"{task}.py").read_text() for task in TASKS}


@pytest.fixture(scope="module")
def found(sources: dict[str, str]) -> dict[str, list[Structure]]:
    return {task: structures(source, {}, "sm_90")[0] for task, source in sources.items()}


@pytest.fixture(scope="module")
def small_answers(sources: dict[str, str], found: dict[str, list[Structure]]) -> Mapping[str, dict[str, str]]:
    requests = [
        Request(sources[task], with_neighbours(found[task], 2), small_form(sources[task]) or {}) for task in TASKS
    ]
    return dict(zip(TASKS, run_worker("interpret", requests), strict=True))


@pytest.fixture(scope="module")
def long_answers(sources: dict[str, str], found: dict[str, list[Structure]]) -> Mapping[str, dict[str, str]]:
    requests = [Request(sources[task], with_neighbours(found[task], 0), LONG_ROWS[task]) for task in LONG_ROWS]
    return dict(zip(LONG_ROWS, run_worker("interpret", requests), strict=True))


@pytest.fixture(scope="module")
def compiled(sources: dict[str, str], found: dict[str, list[Structure]]) -> Mapping[str, dict[str, object]]:
    requests = [
        Request(sources[task], {first.name: first.render(first.defaults)}, {})
        for task in TASKS
        for first in found[task][:1]
    ]
    return dict(zip(TASKS, run_worker("compile", requests), strict=True))


@pytest.mark.parametrize("task", TASKS)
def test_structures_are_named_after_their_family_and_start_from_their_own_choices(
    task: str, found: dict[str, list[Structure]]
) -> None:
    names = [structure.name for structure in found[task]]
    assert len(set(names)) == len(names) >= 3
    assert all(name.startswith(FAMILIES[task]) for name in names)
    for structure in found[task]:
        assert structure.defaults.keys() == structure.choices.keys()
        assert all(value in structure.choices[name] for name, value in structure.defaults.items()), structure.name


@pytest.mark.parametrize("task", TASKS)
def test_every_structure_and_two_neighbours_are_right_at_the_small_form(
    task: str, small_answers: Mapping[str, dict[str, str]]
) -> None:
    assert {name: fault for name, fault in small_answers[task].items() if fault} == {}


@pytest.mark.parametrize("task", LONG_ROWS)
def test_rows_longer_than_one_block_are_right(task: str, long_answers: Mapping[str, dict[str, str]]) -> None:
    assert {name: fault for name, fault in long_answers[task].items() if fault} == {}


@pytest.mark.parametrize("task", TASKS)
def test_the_first_structure_compiles_for_the_target_without_spills(
    task: str, compiled: Mapping[str, dict[str, object]]
) -> None:
    for kernels in compiled[task].values():
        assert isinstance(kernels, list), kernels
        assert kernels
        for kernel in kernels:
            assert kernel["reg"] <= 255
            assert kernel["local"] == kernel["stack"] == 0, kernel
            assert kernel["dynamic_shared"] <= 227 * 1024


@pytest.mark.parametrize("task", TASKS)
def test_modules_stand_alone_and_explain_each_kernel(task: str, found: dict[str, list[Structure]]) -> None:
    for structure in found[task]:
        text = structure.render(structure.defaults)
        assert structure.render(structure.defaults) == text
        imported: set[str] = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").split(".")[0])
        assert imported <= {"torch", "triton", "math"}
        lines = text.splitlines()
        for place, line in enumerate(lines):
            assert len(line) <= 120, line
            if line == "@triton.jit" and not lines[place + 1].startswith(("def tanh", "def log1p", "def expm1")):
                assert lines[place - 1].startswith("# "), structure.name
