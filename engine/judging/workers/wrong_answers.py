"""Answers that need no understanding of a task: what a judge must refuse, whatever the task.

Pure functions on tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

Tensors = list[torch.Tensor]


def trivial_answers(outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> Iterator[tuple[str, Tensors]]:
    """Wrong answers of the right shapes and dtypes, each with its name for people.

    Args:
        outputs: the right answer.
        inputs: what it was asked about.
    """
    yield "zeros", [torch.zeros_like(tensor) for tensor in outputs]
    yield "ones", [torch.ones_like(tensor) for tensor in outputs]
    if all(tensor.numel() == 1 for tensor in outputs):
        # A mean of one value is the value.
        return
    yield "one constant", list(map(_constant, outputs))
    for dimension in range(max((tensor.dim() for tensor in outputs), default=0)):
        if any(dimension < tensor.dim() and tensor.shape[dimension] > 1 for tensor in outputs):
            yield f"means along dimension {dimension}", [_mean_along(tensor, dimension) for tensor in outputs]
    if any(tensor.dim() and tensor.shape[0] > 1 for tensor in outputs):
        yield "its first row repeated", [_first_row(tensor) for tensor in outputs]
    if len(outputs) == 1:
        for index, tensor in enumerate(inputs):
            if tensor.shape == outputs[0].shape and tensor.dtype == outputs[0].dtype:
                yield f"input {index} handed back", [tensor]


def _constant(tensor: torch.Tensor) -> torch.Tensor:
    """The mean everywhere, or for whole numbers the value that is there most often."""
    if tensor.numel() == 0:
        return tensor
    if tensor.is_complex() or tensor.is_floating_point():
        wide = torch.complex128 if tensor.is_complex() else torch.float64
        return torch.full_like(tensor, tensor.to(wide).mean().item())
    return torch.full_like(tensor, tensor.reshape(-1).mode().values.item())


def _mean_along(tensor: torch.Tensor, dimension: int) -> torch.Tensor:
    if dimension >= tensor.dim() or not (tensor.is_complex() or tensor.is_floating_point()):
        return _constant(tensor)
    wide = tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
    return wide.mean(dimension, keepdim=True).to(tensor.dtype).expand_as(tensor)


def _first_row(tensor: torch.Tensor) -> torch.Tensor:
    return tensor[:1].expand_as(tensor) if tensor.dim() and tensor.shape[0] else tensor
