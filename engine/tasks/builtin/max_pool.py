"""Two-dimensional maximum pooling with padding, as after the first convolution of an image network."""

import torch
from torch import nn

FAMILY = "pooling"
IMAGES, CHANNELS, SIDE = 64, 64, 224
SMALL = {"IMAGES": 2, "CHANNELS": 3, "SIDE": 19}


class Model(nn.Module):
    """Maximum over 3x3 windows, two apart, padded by one."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(IMAGES, CHANNELS, SIDE, SIDE)]


def get_init_inputs() -> list[object]:
    return []
