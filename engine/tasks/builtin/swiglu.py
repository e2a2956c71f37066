"""Gated activation of a feed-forward block: the SiLU of one half multiplied by the other half."""

import torch
from torch import nn
from torch.nn import functional as F

FAMILY = "elementwise"
ROWS, COLUMNS = 8192, 8192
SMALL = {"ROWS": 29, "COLUMNS": 180}


class Model(nn.Module):
    """silu(x[:, :n]) * x[:, n:] for an input that is 2n wide."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, value = x.chunk(2, dim=-1)
        return F.silu(gate) * value


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, 2 * COLUMNS)]


def get_init_inputs() -> list[object]:
    return []
