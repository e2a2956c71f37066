"""The running sum of each row."""

import torch
from torch import nn

ROWS, COLUMNS = 4096, 1000
SMALL = {"ROWS": 5, "COLUMNS": 77}


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x, dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs() -> list[object]:
    return []
