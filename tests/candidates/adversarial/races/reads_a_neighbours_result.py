"""A running sum: each program waits for nothing and adds to what the one before it left.

---
task = "column_sum"
verdict = ["incorrect"]
labels = []
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def column_sum_kernel(x_ptr, part_ptr, y_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    step = tl.program_id(1)
    row = step * ROWS + tl.arange(0, ROWS)
    if True:
        mask = (row[:, None] < rows) & (column[None, :] < columns)
        x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=mask, other=0.0)
        before = tl.load(part_ptr + (step - 1) * columns + column, mask=(column < columns) & (step > 0), other=0.0)
        total = before + tl.sum(x, axis=0)
        tl.store(part_ptr + step * columns + column, total, mask=column < columns)
        tl.store(y_ptr + column, total, mask=(column < columns) & (step == tl.num_programs(1) - 1))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty(columns, device=x.device, dtype=x.dtype)
        column_sum_kernel[(triton.cdiv(columns, 32), triton.cdiv(rows, 16))](
            x, torch.zeros(triton.cdiv(rows, 16), columns, device=x.device), y, rows, columns, ROWS=16, COLUMNS=32
        )
        return y
