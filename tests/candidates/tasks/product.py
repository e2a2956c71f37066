"""Matrix product in float32 of two inputs."""

import torch
from torch import nn

FAMILY = "matmul"
M, N, K = 2048, 2048, 2048
SMALL = {"M": 40, "N": 50, "K": 70}


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return []
