"""Other inputs and weights than a task's own, chosen so that every part of the reference shows in its outputs.

Pure functions on tensors and on functions of tensors; which of them a candidate must answer for is
decided in `reference`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

Outputs = list[torch.Tensor]
Answers = Callable[[torch.Tensor], Outputs | None]
"""The reference as a function of one of its inputs or weights; None where it fails or is not finite."""

VISIBLE = 0.05
"""The share of the outputs' variation that counts as clearly visible."""

_FACTORS = (*(8.0**power for power in range(1, 11)), 1 / 8, 1 / 64, 1 / 512)
_OFFSET = 0.01
_SHARE = 500
"""One element in so many changes its place when contents are to look alike."""


def exchanged(tensor: torch.Tensor) -> torch.Tensor:
    """The same values with a few of them in each other's places, the first and the last ones not.

    Sums, extremes and most samples of the contents stay as they were.
    """
    result = tensor.clone().contiguous()
    flat = result.view(-1)
    inner = flat.numel() - 2
    if inner < 6:
        return result
    pairs = max(3, inner // (2 * _SHARE))
    places = 1 + torch.randint(0, inner, (2 * pairs,), device=tensor.device)
    values = flat[places]
    flat[places[:pairs]], flat[places[pairs:]] = values[pairs:], values[:pairs]
    return result


def moved(weight: torch.Tensor, factor: float) -> torch.Tensor:
    """Other values in place of a weight's, `factor` times as large, with every element changed on its own."""
    width = max(0.5 * float(weight.double().std(correction=0)), 0.1)
    return (weight + width * torch.randn_like(weight)) * factor


def effect(answers: Answers, tensor: torch.Tensor) -> float:
    """How much the outputs move when a tensor's values change places, relative to their variation."""
    before = answers(tensor)
    order = torch.randperm(tensor.numel(), device=tensor.device)
    after = answers(tensor.reshape(-1)[order].reshape(tensor.shape))
    if before is None or after is None:
        return float("nan")
    return max((_moved_by(one, other) for one, other in zip(before, after, strict=True)), default=0.0)


def _moved_by(one: torch.Tensor, other: torch.Tensor) -> float:
    if not one.is_floating_point():
        return float((one != other).double().mean())
    one, other = one.double(), other.double()
    spread = float(torch.linalg.vector_norm(one - one.mean())) if one.numel() > 1 else 0.0
    # Outputs that hardly differ from each other do not show what made them differ.
    scale = max(spread, _OFFSET * float(torch.linalg.vector_norm(one)))
    change = float(torch.linalg.vector_norm(other - one))
    return change / scale if scale else float(change > 0)


def amplified(answers: Answers, make: Callable[[float], torch.Tensor]) -> tuple[torch.Tensor, float]:
    """The first of `make(factor)` that shows clearly in the outputs, or the one that shows most; and how much.

    The effect is not a number where the reference is finite for none of them.
    """
    best, most = make(1.0), float("nan")
    for factor in (1.0, *_FACTORS):
        tensor = make(factor)
        seen = effect(answers, tensor)
        if seen >= VISIBLE:
            return tensor, seen
        if seen == seen and not most >= seen:
            best, most = tensor, seen
    return best, most


def fewer_rows(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
    """The tensors with their common leading dimension cut to an odd length; None where they have none.

    Common is the leading dimension of the first tensor that has more than one row.
    """
    rows = next((tensor.shape[0] for tensor in tensors if tensor.dim() and tensor.shape[0] > 2), 0)
    if rows == 0:
        return None
    kept = rows - 2 if rows % 2 else rows - 1
    return [tensor[:kept].clone() if tensor.dim() and tensor.shape[0] == rows else tensor.clone() for tensor in tensors]
