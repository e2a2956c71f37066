"""Weights and inputs made as large as it takes for each of them to show in the reference's outputs.

Works on a model and a function that runs it; seeds are the caller's business.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch

from engine.judging.workers import variations

Tensors = list[torch.Tensor]
Run = Callable[[torch.nn.Module, Tensors], Tensors | None]
"""Runs a model on inputs that it may change; None where it fails or where outputs are not finite."""

MOST_AMPLIFIED = 8
"""How many weights, and how many inputs, are looked at: each costs at least two calls of the reference."""

_SHOWS = 5e-3


def changed(model: torch.nn.Module, run: Run, inputs: Tensors) -> torch.nn.Module:
    """A copy of the model with every parameter moved, so far that each shows in the outputs where that can be."""
    result = copy.deepcopy(model)
    moving = [parameter for parameter in result.parameters() if parameter.is_floating_point()]
    for parameter in moving:
        parameter.copy_(variations.moved(parameter, 1.0))
    for parameter in moving[:MOST_AMPLIFIED]:
        plain = parameter.clone()

        def answers(value: torch.Tensor, parameter: torch.Tensor = parameter) -> Tensors | None:
            parameter.copy_(value)
            return run(result, inputs)

        try:
            chosen, seen = variations.amplified(answers, lambda factor, plain=plain: plain * factor)  # type: ignore[misc]
        except torch.OutOfMemoryError:
            chosen, seen = plain, 0.0
        parameter.copy_(chosen if seen == seen else plain)
    return result


def amplified_input(
    model: torch.nn.Module, run: Run, inputs: Sequence[torch.Tensor], index: int
) -> torch.Tensor | None:
    """One of the inputs, enlarged until it shows; None where it shows as it is, or never."""
    tensor = inputs[index]
    if not tensor.is_floating_point() or tensor.numel() < 2:
        return None

    def answers(value: torch.Tensor) -> Tensors | None:
        return run(model, [*inputs[:index], value, *inputs[index + 1 :]])

    try:
        if variations.effect(answers, tensor) >= variations.VISIBLE:
            return None
        chosen, seen = variations.amplified(answers, lambda factor: tensor * factor)
    except torch.OutOfMemoryError:
        return None
    return chosen if seen > 0 and not torch.equal(chosen, tensor) else None


def shows(model: torch.nn.Module, run: Run, inputs: Tensors, name: str) -> bool:
    """Whether right answers prove that a weight, as it is, was used: it clearly shows in them."""
    trying = copy.deepcopy(model)
    weight = (dict(trying.named_parameters()) | dict(trying.named_buffers()))[name]
    kept = weight.clone()

    def answers(value: torch.Tensor) -> Tensors | None:
        weight.copy_(value)
        return run(trying, inputs)

    # A buffer that the reference does not read in its mode need not be there at all.
    moves = not variations.effect(answers, variations.moved(weight.double(), 8.0).to(weight.dtype)) <= 0.0
    return not moves or variations.effect(answers, kept) >= _SHOWS
