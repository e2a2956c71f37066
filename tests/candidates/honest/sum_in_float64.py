"""More precise than the reference.

---
task = "column_sum"
verdict = ["correct"]
labels = []
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def column_sum_kernel(x_ptr, y_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((COLUMNS,), tl.float64)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)
        mask = (row[:, None] < rows) & (column[None, :] < columns)
        x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=mask, other=0.0)
        total += tl.sum(x.to(tl.float64), axis=0)
    tl.store(y_ptr + column, total, mask=column < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty(columns, device=x.device, dtype=x.dtype)
        column_sum_kernel[(triton.cdiv(columns, 32),)](x, y, rows, columns, ROWS=16, COLUMNS=32)
        return y
