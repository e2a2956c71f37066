"""Layer normalisation of each row, with a learned scale and shift."""

import torch
from torch import nn

FAMILY = "normalisation"
ROWS, COLUMNS = 16384, 4096
SMALL = {"ROWS": 21, "COLUMNS": 250}


class Model(nn.Module):
    """LayerNorm over the last dimension; the parameters differ from one and zero so that they matter."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(columns)
        nn.init.normal_(self.norm.weight, mean=1.0, std=0.3)
        nn.init.normal_(self.norm.bias, std=0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs() -> list[object]:
    return [COLUMNS]
