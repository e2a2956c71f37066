"""One-dimensional convolution with bias in float32."""

import torch
from torch import nn

FAMILY = "convolution"
BATCH, CHANNELS, OUTPUTS, LENGTH = 64, 16, 16, 8192
SMALL = {"BATCH": 2, "CHANNELS": 3, "OUTPUTS": 4, "LENGTH": 50}


class Model(nn.Module):
    def __init__(self, channels, outputs):
        super().__init__()
        self.conv = nn.Conv1d(channels, outputs, 3)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, LENGTH)]


def get_init_inputs():
    return [CHANNELS, OUTPUTS]
