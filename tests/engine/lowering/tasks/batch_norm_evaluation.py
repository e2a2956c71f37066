"""Batch normalisation with fixed statistics."""

import torch
from torch import nn

BATCH, FEATURES, SIDE = 32, 64, 48
SMALL = {"BATCH": 3, "FEATURES": 5, "SIDE": 7}


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(features)
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.bn(x)
        return result


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, FEATURES, SIDE, SIDE)]


def get_init_inputs() -> list[object]:
    return [FEATURES]
