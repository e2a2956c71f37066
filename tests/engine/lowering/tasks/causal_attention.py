"""Causal self-attention of several heads, written out, with a mask that is a buffer."""

import math

import torch
from torch import nn
from torch.nn import functional as F

BATCH, LONGEST, LENGTH, WIDTH, HEADS = 8, 1024, 512, 768, 12
SMALL = {"BATCH": 2, "LENGTH": 20, "WIDTH": 48}


class Model(nn.Module):
    def __init__(self, width: int, heads: int, longest: int) -> None:
        super().__init__()
        self.attend = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(longest, longest)).view(1, 1, longest, longest))
        self.mask: torch.Tensor
        self.heads, self.width = heads, width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.size()
        query, key, value = self.attend(x).split(self.width, dim=2)
        query = query.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        key = key.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        value = value.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        scores = (query @ key.transpose(-2, -1)) * (1.0 / math.sqrt(key.size(-1)))
        scores = scores.masked_fill(self.mask[:, :, :length, :length] == 0, float("-inf"))
        mixed = (F.softmax(scores, dim=-1) @ value).transpose(1, 2).contiguous().view(batch, length, width)
        result: torch.Tensor = self.project(mixed)
        return result


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, LENGTH, WIDTH)]


def get_init_inputs() -> list[object]:
    return [WIDTH, HEADS, LONGEST]
