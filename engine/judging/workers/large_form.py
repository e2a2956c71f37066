"""The large form of a case on a machine that could not hold it: shapes for the contestant, costs for the model."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map

from engine.judging.workers.faults import one_line
from engine.judging.workers.stand_ins import describe_inputs, without_memory
from engine.judging.workers.torch_calls import count_reference
from engine.judging.workers.values import dtype_name, flatten

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LargeForm:
    """What is known of the large form without allocating it.

    Attributes:
        contestant: constructor arguments and inputs as shapes, for `launches.sample`.
        cost: `calls` and `bound` of the reference (`torch_calls.count_reference`).
        problem: why there is no cost, in one line; empty where there is one.
    """

    contestant: Json
    cost: Json | None
    problem: str = ""


def describe(module: types.ModuleType, dtype: torch.dtype | None) -> LargeForm:
    """Runs the task's own code on tensors without memory."""

    def cast(value: Any) -> Any:
        floating = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(dtype) if dtype is not None and floating else value

    initial: Callable[[], Any] = getattr(module, "get_init_inputs", list)

    def build() -> torch.nn.Module:
        model: torch.nn.Module = module.Model(*initial())
        return model.to(dtype) if dtype is not None else model

    def inputs() -> list[Any]:
        return list(tree_map(cast, module.get_inputs()))

    try:
        constants: list[torch.Tensor] = []
        tensors: list[torch.Tensor] = []
        with without_memory():
            init = flatten(list(initial()), constants)
            form = flatten(list(module.get_inputs()), tensors)
            contestant = {
                "init": init,
                "constants": describe_inputs(constants),
                "input_form": form,
                "inputs": describe_inputs([cast(tensor) for tensor in tensors]),
                "dtype": dtype_name(dtype) if dtype is not None else None,
            }
    except Exception as error:
        return LargeForm({}, None, f"the inputs have no large form: {type(error).__name__}: {one_line(error)}")
    try:
        cost = count_reference(build, inputs)
    except Exception as error:
        return LargeForm(
            contestant, None, f"the reference cannot be modelled: {type(error).__name__}: {one_line(error)}"
        )
    return LargeForm(contestant, cost)
