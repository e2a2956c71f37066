"""Matrix product in float32 whose bias saturates the sigmoid behind it."""

import torch
from torch import nn

FAMILY = "matmul"
ROWS, FEATURES, OUTPUTS = 4096, 1024, 1024
SMALL = {"ROWS": 20, "FEATURES": 40, "OUTPUTS": 30}


class Model(nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.linear = nn.Linear(features, outputs)
        with torch.no_grad():
            self.linear.bias.add_(30.0)

    def forward(self, x):
        return torch.sigmoid(self.linear(x))


def get_inputs():
    return [torch.randn(ROWS, FEATURES)]


def get_init_inputs():
    return [FEATURES, OUTPUTS]
