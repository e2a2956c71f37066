"""Rows of a table by index, scaled."""

import torch
from torch import nn

BATCH, LENGTH, VOCABULARY, WIDTH = 64, 512, 32000, 256
SMALL = {"BATCH": 3, "LENGTH": 7, "VOCABULARY": 50, "WIDTH": 24}


class Model(nn.Module):
    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.table(tokens) * 2.0
        return result


def get_inputs() -> list[torch.Tensor]:
    return [torch.randint(0, VOCABULARY, (BATCH, LENGTH))]


def get_init_inputs() -> list[object]:
    return [VOCABULARY, WIDTH]
