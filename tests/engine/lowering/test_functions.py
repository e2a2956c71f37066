"""What lowering writes for a function task is a function with the reference's signature."""

from __future__ import annotations

import ast

import pytest

from engine.lowering.functions import FunctionForm, function_form
from engine.lowering.structure import Structure
from engine.tasks.catalogue import find_task

TASK = """
LIMIT = 3.0
ENTRY = "shift"
MUTATES = ["state"]


def reference(x: torch.Tensor, state: "Tensor", amount: float = 1.0, label: Kind = None):
    state.add_(x)
    return x * amount


CASES = [{"name": "one", "inputs": {}}]
"""

MODULE = '''"""A module."""

import torch
import triton
from torch import nn


@triton.jit
def shift_kernel(x_ptr):
    pass


class ModelNew(nn.Module):
    def forward(
        self, x: torch.Tensor, state: torch.Tensor, amount: float, label
    ) -> tuple[torch.Tensor, torch.Tensor]:
        state = state.contiguous()
        shift_kernel[(1,)](x)
        return {results}
'''


def _written(results: str, functional: bool, task: str = TASK, module: str = MODULE) -> str:
    form = function_form(task)
    assert isinstance(form, FunctionForm)
    structure = Structure("s", "An idea.", {}, {}, lambda parameters: module.replace("{results}", results))
    return form.structure(structure, functional).render({})


def test_the_function_has_the_references_signature_as_far_as_it_means_the_same_elsewhere() -> None:
    text = _written("output", functional=False)
    assert "def shift(x: torch.Tensor, state: 'Tensor', amount: float=1.0, label=None):\n" in text
    assert "class " not in text and "from torch import nn" not in text
    assert "    assert state.is_contiguous()\n    shift_kernel[(1,)](x)\n    return output\n" in text
    ast.parse(text)


@pytest.mark.parametrize(
    ("results", "end"),
    [
        ("output, state_2", "    state.copy_(state_2)\n    return output\n"),
        ("one, other, state_2", "    state.copy_(state_2)\n    return one, other\n"),
        ("state_2", "    shift_kernel[(1,)](x)\n    state.copy_(state_2)\n"),
    ],
)
def test_new_values_of_what_changes_are_copied_into_place(results: str, end: str) -> None:
    text = _written(results, functional=True)
    assert text.endswith(end)
    assert "-> tuple" not in text
    ast.parse(text)


def test_what_changes_nothing_keeps_its_results() -> None:
    text = _written("output, other", functional=True, task=TASK.replace('["state"]', "[]"))
    assert text.endswith("    return output, other\n")
    assert "state = state.contiguous()" in text


def test_a_module_with_weights_cannot_be_a_function() -> None:
    with pytest.raises(ValueError, match="more than a forward method"):
        _written("output", functional=False, module=MODULE.replace("(x)", "(x, self.weight)"))


def test_other_tasks_have_no_form_of_a_function() -> None:
    assert function_form(find_task("softmax").source) is None
