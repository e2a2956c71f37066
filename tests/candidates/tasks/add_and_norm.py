"""Adds an input to the residual in place and normalises it, in bfloat16: one argument is an output as well."""

import torch
from torch import nn

FAMILY = "normalisation"
ROWS, COLUMNS = 2048, 4096
SMALL = {"ROWS": 7, "COLUMNS": 80}


class Model(nn.Module):
    def forward(self, x, residual):
        residual.add_(x)
        wide = residual.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + 1e-6)).bfloat16()


def get_inputs():
    return [torch.randn(ROWS, COLUMNS, dtype=torch.bfloat16), torch.randn(ROWS, COLUMNS, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
