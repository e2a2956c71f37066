"""Softmax along the last dimension."""

import torch
from torch import nn

FAMILY = "softmax"
ROWS, COLUMNS = 16384, 8192
SMALL = {"ROWS": 19, "COLUMNS": 300}


class Model(nn.Module):
    """Each row becomes a distribution."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs() -> list[object]:
    return []
