"""A recurrent layer, unrolled because its length is fixed while it is traced."""

import torch
from torch import nn

BATCH, LENGTH, INPUTS, HIDDEN = 16, 4, 32, 64


class Model(nn.Module):
    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, hidden, 1, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.lstm(x)[0]
        return result


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, LENGTH, INPUTS)]


def get_init_inputs() -> list[object]:
    return [INPUTS, HIDDEN]
