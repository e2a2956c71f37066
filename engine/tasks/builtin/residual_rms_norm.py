"""Add a residual, then normalise each row by its root mean square: the start of a transformer block."""

import torch
from torch import nn

FAMILY = "normalisation"
ROWS, COLUMNS = 16384, 4096
SMALL = {"ROWS": 23, "COLUMNS": 270}


class Model(nn.Module):
    """RMS norm of x + residual; returns the normalised rows and the sum, which the next block needs."""

    def __init__(self, columns: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(1.0 + 0.3 * torch.randn(columns))
        self.epsilon = epsilon

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = x + residual
        inverse = torch.rsqrt(total.pow(2).mean(dim=-1, keepdim=True) + self.epsilon)
        return total * inverse * self.weight, total


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS)]


def get_init_inputs() -> list[object]:
    return [COLUMNS, 1e-6]
