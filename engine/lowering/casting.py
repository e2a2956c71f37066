"""The dtype that a run casts a task to, in the lowering process: what the judge does to it, done here too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def cast(model: torch.nn.Module, inputs: Sequence[Any], dtype: str | None) -> tuple[torch.nn.Module, list[Any]]:
    """The model and its inputs with floating numbers of a dtype, named as torch names it; None keeps their own."""
    if dtype is None:
        return model, list(inputs)
    kind: torch.dtype = getattr(torch, dtype)
    # Not `model.to`, which cannot exchange parameters that have no memory.
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.is_floating_point():
                module.register_parameter(
                    name, torch.nn.Parameter(parameter.detach().to(kind), parameter.requires_grad)
                )
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.is_floating_point():
                setattr(module, name, buffer.to(kind))
    return model, [
        value.to(kind) if isinstance(value, torch.Tensor) and value.is_floating_point() else value for value in inputs
    ]
