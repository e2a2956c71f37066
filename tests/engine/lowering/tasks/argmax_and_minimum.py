"""Two reductions of one tensor along different dimensions, one of them an index."""

import torch
from torch import nn

PLANES, ROWS, COLUMNS = 64, 300, 500
SMALL = {"PLANES": 3, "ROWS": 30, "COLUMNS": 21}


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.argmax(x, dim=1), x.amin(dim=2)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(PLANES, ROWS, COLUMNS)]


def get_init_inputs() -> list[object]:
    return []
