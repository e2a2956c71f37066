"""A convolution, ReLU and a bias for each channel."""

import torch
from torch import nn

BATCH, SIDE = 16, 64
IN_CHANNELS, OUT_CHANNELS = 8, 16
SMALL = {"BATCH": 2, "SIDE": 11}


class Model(nn.Module):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 3)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(x)) + self.bias


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, IN_CHANNELS, SIDE, SIDE)]


def get_init_inputs() -> list[object]:
    return [IN_CHANNELS, OUT_CHANNELS]
