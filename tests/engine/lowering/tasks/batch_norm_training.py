"""Batch normalisation in training: the statistics are outputs too."""

import torch
from torch import nn

BATCH, FEATURES, HEIGHT, WIDTH = 32, 64, 48, 40
SMALL = {"BATCH": 3, "FEATURES": 5, "HEIGHT": 7, "WIDTH": 9}


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super(Model, self).__init__()  # noqa: UP008 - as KernelBench writes it
        self.bn = nn.BatchNorm2d(num_features=features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.bn(x)
        return result


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, FEATURES, HEIGHT, WIDTH)]


def get_init_inputs() -> list[object]:
    return [FEATURES]
