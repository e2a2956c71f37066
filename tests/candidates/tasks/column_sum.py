"""Reduction in float32 along the leading dimension: programs that share an output."""

import torch
from torch import nn

FAMILY = "reduction"
ROWS, COLUMNS = 4096, 2040
SMALL = {"ROWS": 60, "COLUMNS": 40}


class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=0)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
