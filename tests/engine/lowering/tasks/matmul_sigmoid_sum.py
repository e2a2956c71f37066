"""A linear layer, a sigmoid and the sum of each row."""

import torch
from torch import nn

BATCH, INPUTS, HIDDEN = 512, 1024, 768
SMALL = {"BATCH": 20, "INPUTS": 40, "HIDDEN": 70}


class Model(nn.Module):
    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sum(torch.sigmoid(self.linear(x)), dim=1, keepdim=True)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, INPUTS)]


def get_init_inputs() -> list[object]:
    return [INPUTS, HIDDEN]
