"""Partial sums in one launch, their sum in a second: programs read what others wrote, one launch later.

---
task = "column_sum"
verdict = ["correct"]
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
    total = tl.zeros((COLUMNS,), tl.float32)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)
        mask = (row[:, None] < rows) & (column[None, :] < columns)
        x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=mask, other=0.0)
        total += tl.sum(x, axis=0)
    tl.store(y_ptr + column, total, mask=column < columns)


@triton.jit
def partial_kernel(x_ptr, part_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    mask = (row[:, None] < rows) & (column[None, :] < columns)
    x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=mask, other=0.0)
    tl.store(part_ptr + tl.program_id(1) * columns + column, tl.sum(x, axis=0), mask=column < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty(columns, device=x.device, dtype=x.dtype)
        parts = triton.cdiv(rows, 16)
        part = torch.empty(parts, columns, device=x.device)
        partial_kernel[(triton.cdiv(columns, 32), parts)](x, part, rows, columns, ROWS=16, COLUMNS=32)
        column_sum_kernel[(triton.cdiv(columns, 32),)](part, y, parts, columns, ROWS=16, COLUMNS=32)
        return y
