"""Linear layer with bias in bfloat16."""

import torch
from torch import nn

FAMILY = "matmul"
ROWS, FEATURES, OUTPUTS = 4096, 2048, 2048
SMALL = {"ROWS": 20, "FEATURES": 48, "OUTPUTS": 40}


class Model(nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.linear = nn.Linear(features, outputs, dtype=torch.bfloat16)

    def forward(self, x):
        return self.linear(x)


def get_inputs():
    return [torch.randn(ROWS, FEATURES, dtype=torch.bfloat16)]


def get_init_inputs():
    return [FEATURES, OUTPUTS]
