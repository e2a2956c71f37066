"""Elementwise in float32: the second input is far too small to show beside the first."""

import torch
from torch import nn

FAMILY = "elementwise"
ROWS, COLUMNS = 2048, 4096
SMALL = {"ROWS": 6, "COLUMNS": 70}


class Model(nn.Module):
    def forward(self, x, correction):
        return torch.relu(x) + correction


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS) * 1e-9]


def get_init_inputs():
    return []
