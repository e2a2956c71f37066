"""Add a bias to each row, apply the tanh form of GELU, and add the scaled residual."""

import torch
from torch import nn
from torch.nn import functional as F

FAMILY = "elementwise"
ROWS, COLUMNS = 8192, 8192
SMALL = {"ROWS": 37, "COLUMNS": 200}


class Model(nn.Module):
    """gelu(x + bias) + scale * residual."""

    def __init__(self, columns: int, scale: float) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns))
        self.scale = scale

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return F.gelu(x + self.bias, approximate="tanh") + self.scale * residual


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS)]


def get_init_inputs() -> list[object]:
    return [COLUMNS, 0.5]
