"""A fixed number of programs, each taking rows in turn.

---
task = "affine"
verdict = ["correct"]
labels = []
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def affine_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr):
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = column < columns
    weight = tl.load(weight_ptr + column, mask=mask)
    bias = tl.load(bias_ptr + column, mask=mask)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * columns + column, mask=mask)
        tl.store(y_ptr + row * columns + column, x * weight + bias, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns))
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        y = torch.empty_like(x)
        rows, columns = x.shape
        affine_kernel[(min(rows, 4), triton.cdiv(columns, 32))](x, self.weight, self.bias, y, rows, columns, BLOCK=32)
        return y
