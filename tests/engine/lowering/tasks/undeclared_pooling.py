"""A transposed convolution and pooling as a benchmark has it: no small form is declared."""

import torch
from torch import nn

batch_size = 2
in_channels, out_channels = 3, 4
depth = 6


class Model(nn.Module):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose3d(in_channels, out_channels, 3, stride=2, padding=1)
        self.pool = nn.AvgPool3d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.logsumexp(self.pool(self.conv(x)), dim=1, keepdim=True).clamp(min=0.1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, in_channels, depth, depth, depth)]


def get_init_inputs() -> list[object]:
    return [in_channels, out_channels]
