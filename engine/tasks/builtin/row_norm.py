"""Euclidean length of each row: a reduction that reads much and writes little."""

import torch
from torch import nn

FAMILY = "reduction"
ROWS, COLUMNS = 16384, 16384
SMALL = {"ROWS": 31, "COLUMNS": 410}


class Model(nn.Module):
    """The square root of the sum of squares along the last dimension."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.square().sum(dim=-1).sqrt()


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs() -> list[object]:
    return []
