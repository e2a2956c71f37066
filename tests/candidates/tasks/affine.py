"""Elementwise in float32: a weight and a bias for each column; the bias is zero at first."""

import torch
from torch import nn

FAMILY = "elementwise"
ROWS, COLUMNS = 2048, 4100
SMALL = {"ROWS": 7, "COLUMNS": 50}


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns))
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        return x * self.weight + self.bias


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return [COLUMNS]
