"""What TorchInductor gives for tasks: plain modules that are right at sizes they were not lowered for."""

from __future__ import annotations

import ast

import pytest

from tests.engine.lowering.conftest import BUILTIN, QUICK, SLOW, LoweredFolder, interpret

REFUSED = {"dropout": "random", "data_dependent": "depends on the values"}
TASKS = [path.stem for path in QUICK if path.stem not in REFUSED]


@pytest.mark.parametrize("task", TASKS)
def test_a_task_gives_plain_modules(task: str, lowered: LoweredFolder) -> None:
    texts = lowered.texts(task)
    assert texts, lowered.report[task]["reasons"]
    for name, text in texts.items():
        tree = ast.parse(text)
        imported = {ast.unparse(n) for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)}
        assert not any("inductor" in line for line in imported), name
        assert {"ModelNew"} <= {n.name for n in tree.body if isinstance(n, ast.ClassDef)}
        assert max(len(line) for line in text.splitlines()) <= 140, name
        for sign in ("XBLOCK", "in_ptr", "tmp0", "xindex", "triton_helpers", "libdevice", "arg0_1", "buf0"):
            assert sign not in text, f"{name} still says {sign}"


@pytest.mark.parametrize("task", TASKS)
def test_each_kernel_says_what_it_fuses(task: str, lowered: LoweredFolder) -> None:
    for text in lowered.texts(task).values():
        lines = text.splitlines()
        kernels = [i for i, line in enumerate(lines) if line.startswith("def ") and "_kernel" in line.partition("(")[0]]
        combined = [i for i in kernels if "_combine" in lines[i]]
        assert all(lines[i - 2].startswith("# Fuses ") for i in kernels if i not in combined)


@pytest.mark.parametrize("task", TASKS)
def test_modules_are_right_at_the_small_form(
    task: str, lowered: LoweredFolder, interpreted: dict[str, float | str]
) -> None:
    for name in lowered.texts(task):
        error = interpreted[f"{task}/{name}"]
        assert isinstance(error, float), error
        assert error < 1e-5, f"{task}/{name} differs by {error:.1e}"


@pytest.mark.parametrize("task", TASKS)
def test_structures_of_a_task_are_distinct(task: str, lowered: LoweredFolder) -> None:
    texts = [ast.unparse(ast.Module(ast.parse(t).body[1:], [])) for t in lowered.texts(task).values()]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("task", [path.stem for path in BUILTIN])
def test_every_neighbour_is_another_module(task: str, lowered: LoweredFolder) -> None:
    for name, entry in lowered.report[task]["structures"].items():
        assert entry["texts"] == entry["neighbours"] - len(entry["refused"]), name
        assert entry["texts"] >= 5, name
        assert all("too large" in sentence or "shared memory" in sentence for sentence in entry["refused"])


def test_built_in_tasks_have_several_structures(lowered: LoweredFolder) -> None:
    counts = {path.stem: len(lowered.report[path.stem]["structures"]) for path in BUILTIN}
    assert min(counts.values()) >= 2 and sum(counts.values()) >= 30, counts
    assert all("inductor/default" in lowered.report[path.stem]["structures"] for path in BUILTIN)


@pytest.mark.parametrize("task", REFUSED)
def test_a_task_that_cannot_be_lowered_says_why(task: str, lowered: LoweredFolder) -> None:
    entry = lowered.report[task]
    assert entry["structures"] == {}
    assert len(entry["reasons"]) == 1, entry["reasons"]
    assert REFUSED[task] in entry["reasons"][0] and entry["reasons"][0].endswith(".")
    assert "\n" not in entry["reasons"][0]


@pytest.mark.slow
def test_large_graphs_are_right_at_the_small_form(slowly_lowered: LoweredFolder) -> None:
    results = interpret(slowly_lowered, SLOW)
    assert len(results) >= 15
    assert all(isinstance(error, float) and error < 1e-5 for error in results.values()), results


def test_matrix_products_keep_single_precision(lowered: LoweredFolder) -> None:
    text = lowered.texts("linear_gelu")["matmul"]
    assert "tl.dot(" in text and "input_precision='ieee'" in text
