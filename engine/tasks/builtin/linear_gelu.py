"""A linear layer with bias followed by the exact GELU: a matrix product with an epilogue."""

import torch
from torch import nn
from torch.nn import functional as F

FAMILY = "matmul"
ROWS, FEATURES, OUTPUTS = 4096, 4096, 4096
SMALL = {"ROWS": 70, "FEATURES": 90, "OUTPUTS": 100}


class Model(nn.Module):
    """gelu(x @ weight.T + bias)."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.linear(x))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, FEATURES)]


def get_init_inputs() -> list[object]:
    return [FEATURES, OUTPUTS]
