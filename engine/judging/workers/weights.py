"""Which of a candidate's tensors hold the reference's weights, by name or by value, in whatever layout.

Runs in the contestant. A strict load would refuse honest kernels that keep weights transposed, in another
dtype or under other names; built from the same seed, they can be recognised by what they hold.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import torch

_MOST_DIMENSIONS = 4


@dataclass(frozen=True, slots=True)
class Home:
    """Where a weight lives: the tensor, and how the weight's dimensions are permuted and then regrouped in it."""

    tensor: torch.Tensor
    order: tuple[int, ...] | None = None

    def put(self, value: torch.Tensor) -> None:
        """Writes a weight into its place."""
        arranged = value if self.order is None else value.permute(self.order)
        self.tensor.data.copy_(arranged.reshape(self.tensor.shape))


def find_homes(model: torch.nn.Module, state: Mapping[str, torch.Tensor]) -> dict[str, Home]:
    """The home of each weight of the reference; those without one are left out.

    `state` holds the reference's values, which the candidate's own are equal to where both were made alike.
    """
    mine = dict(model.named_parameters()) | dict(model.named_buffers())
    homes = {}
    for name, value in state.items():
        target = mine.get(name)
        if target is not None and target.shape == value.shape:
            homes[name] = Home(target)
    taken = {id(home.tensor) for home in homes.values()}
    free = [tensor for tensor in {**_attributes(model), **mine}.values() if id(tensor) not in taken]
    for name, value in state.items():
        if name in homes:
            continue
        for index, tensor in enumerate(free):
            order = _same_values(tensor, value)
            if order is not None:
                homes[name] = Home(tensor, order)
                del free[index]
                break
    return homes


def _attributes(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Tensors that a module holds without having registered them."""
    return {
        f"{number}.{name}": value
        for number, part in enumerate(model.modules())
        for name, value in vars(part).items()
        if isinstance(value, torch.Tensor)
    }


def _same_values(tensor: torch.Tensor, value: torch.Tensor) -> tuple[int, ...] | None:
    """The order of dimensions in which `tensor` holds what `value` does; None where it does not."""
    if tensor.numel() != value.numel() or value.dim() > _MOST_DIMENSIONS or tensor.device != value.device:
        return None
    if tensor.is_floating_point() != value.is_floating_point():
        return None
    narrow = value.to(tensor.dtype)
    flat = tensor.detach().reshape(-1)
    for order in itertools.permutations(range(value.dim())):
        if torch.equal(narrow.permute(order).reshape(-1), flat):
            return order
    return None
