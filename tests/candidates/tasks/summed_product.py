"""Matrix product in float32 of which only the sum of each row is wanted."""

import torch
from torch import nn

FAMILY = "matmul"
ROWS, FEATURES, OUTPUTS = 2048, 1024, 1024
SMALL = {"ROWS": 20, "FEATURES": 40, "OUTPUTS": 30}


class Model(nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.linear = nn.Linear(features, outputs)

    def forward(self, x):
        return self.linear(x).sum(dim=1, keepdim=True)


def get_inputs():
    return [torch.randn(ROWS, FEATURES)]


def get_init_inputs():
    return [FEATURES, OUTPUTS]
