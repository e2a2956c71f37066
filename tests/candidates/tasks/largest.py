"""Reduction with two outputs, one of them integer: the largest value of each row and where it is."""

import torch
from torch import nn

FAMILY = "reduction"
ROWS, COLUMNS = 2048, 4096
SMALL = {"ROWS": 11, "COLUMNS": 60}


class Model(nn.Module):
    def forward(self, x):
        values, places = torch.max(x, dim=-1)
        return values, places


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
