"""Root-mean-square normalisation in float16; the weight is one at first."""

import torch
from torch import nn

FAMILY = "normalisation"
ROWS, COLUMNS = 2048, 4096
SMALL = {"ROWS": 9, "COLUMNS": 100}


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns, dtype=torch.float16))

    def forward(self, x):
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + 1e-6)
        return (wide * scale * self.weight.float()).half()


def get_inputs():
    return [torch.randn(ROWS, COLUMNS, dtype=torch.float16)]


def get_init_inputs():
    return [COLUMNS]
