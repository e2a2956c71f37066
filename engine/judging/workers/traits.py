"""What an output is beside its values: whose memory it lies in, and whether its elements have memory of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Traits:
    """One output's memory.

    Attributes:
        kind: the name of a subclass of Tensor; empty for a plain one.
        overlapping: whether elements share memory, as those of an expanded tensor do.
        inside: the number of the input in whose memory it lies; None where it has its own.
    """

    kind: str
    overlapping: bool
    inside: int | None

    def to_json(self) -> list[Any]:
        """The traits as they travel."""
        return [self.kind, self.overlapping, self.inside]

    @classmethod
    def from_json(cls, fields: Any) -> Traits:
        """The traits in an answer; ValueError where they are none."""
        if not isinstance(fields, list) or len(fields) != 3:
            raise ValueError("not the traits of a tensor")
        kind, overlapping, inside = fields
        if not isinstance(kind, str) or not isinstance(overlapping, bool):
            raise ValueError("not the traits of a tensor")
        if inside is not None and type(inside) is not int:
            raise ValueError("not the traits of a tensor")
        return cls(kind, overlapping, inside)


def traits_of(outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[Traits]:
    """The traits of every output of a call on these inputs."""
    with torch._C.DisableTorchFunction():
        places = [_extent(tensor) for tensor in inputs]
        return [
            Traits(
                "" if type(tensor) in (torch.Tensor, torch.nn.Parameter) else type(tensor).__name__,
                any(length > 1 and stride == 0 for length, stride in zip(tensor.shape, tensor.stride(), strict=True)),
                _inside(_extent(tensor), places),
            )
            for tensor in outputs
        ]


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses of a tensor's first byte and of the one behind its last."""
    if tensor.numel() == 0 or tensor.layout is not torch.strided:
        return 0, 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    try:
        start = int(tensor.data_ptr())
    except RuntimeError:
        # A tensor without memory of its own is of a kind that is refused anyway.
        return 0, 0
    return start, start + (last + 1) * tensor.element_size()


def _inside(extent: tuple[int, int], places: Sequence[tuple[int, int]]) -> int | None:
    for index, (start, end) in enumerate(places):
        if extent[0] < end and start < extent[1]:
            return index
    return None
