"""Reduction with named outputs: mean and variance of each row, and how many of its values are positive."""

import torch
from torch import nn

FAMILY = "reduction"
ROWS, COLUMNS = 2048, 4096
SMALL = {"ROWS": 8, "COLUMNS": 90}


class Model(nn.Module):
    def forward(self, x):
        return {
            "mean": x.mean(dim=-1),
            "variance": x.var(dim=-1, correction=0),
            "positive": (x > 0).sum(dim=-1),
        }


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
