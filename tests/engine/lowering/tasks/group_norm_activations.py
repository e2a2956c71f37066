"""A linear layer, group normalisation, and two activations that use log1p and tanh."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH, FEATURES, OUTPUTS, GROUPS = 256, 512, 1024, 8
SMALL = {"BATCH": 5, "FEATURES": 20, "OUTPUTS": 48}


class Model(nn.Module):
    def __init__(self, features: int, outputs: int, groups: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, outputs)
        self.norm = nn.GroupNorm(groups, outputs)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.norm(self.linear(x))
        return {"clamped": F.hardtanh(F.softplus(x), -2.0, 2.0), "mish": F.mish(x)}


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, FEATURES)]


def get_init_inputs() -> list[object]:
    return [FEATURES, OUTPUTS, GROUPS]
