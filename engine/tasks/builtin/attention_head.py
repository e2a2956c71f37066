"""Scaled dot-product attention of one head, written out step by step."""

import math

import torch
from torch import nn

FAMILY = "attention"
QUERIES, KEYS, WIDTH = 8192, 8192, 64
SMALL = {"QUERIES": 50, "KEYS": 70, "WIDTH": 32}


class Model(nn.Module):
    """softmax(query @ key.T / sqrt(width)) @ value."""

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        return torch.softmax(scores, dim=-1) @ value


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(QUERIES, WIDTH), torch.randn(KEYS, WIDTH), torch.randn(KEYS, WIDTH)]


def get_init_inputs() -> list[object]:
    return []
