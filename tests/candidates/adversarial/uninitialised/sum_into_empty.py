"""Atomics add to memory that was never cleared; it often holds zeros.

---
task = "column_sum"
verdict = ["incorrect"]
labels = []
quick = true
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def column_sum_kernel(x_ptr, y_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    if True:
        mask = (row[:, None] < rows) & (column[None, :] < columns)
        x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=mask, other=0.0)
        tl.atomic_add(y_ptr + column, tl.sum(x, axis=0), mask=column < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty(columns, device=x.device, dtype=x.dtype)
        column_sum_kernel[(triton.cdiv(columns, 32), triton.cdiv(rows, 16))](x, y, rows, columns, ROWS=16, COLUMNS=32)
        return y
