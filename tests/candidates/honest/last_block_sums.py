"""The last program to arrive, found with a counter, adds up what the others left.

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
def column_sum_kernel(x_ptr, part_ptr, count_ptr, y_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    step = tl.program_id(1)
    steps = tl.num_programs(1)
    row = step * ROWS + tl.arange(0, ROWS)
    if True:
        mask = (row[:, None] < rows) & (column[None, :] < columns)
        x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=mask, other=0.0)
        tl.store(part_ptr + step * columns + column, tl.sum(x, axis=0), mask=column < columns)
    if tl.atomic_add(count_ptr + tl.program_id(0), 1) == steps - 1:
        total = tl.zeros((COLUMNS,), tl.float32)
        for other in range(steps):
            total += tl.load(part_ptr + other * columns + column, mask=column < columns, other=0.0)
        tl.store(y_ptr + column, total, mask=column < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty(columns, device=x.device, dtype=x.dtype)
        part = torch.empty(triton.cdiv(rows, 16), columns, device=x.device)
        count = torch.zeros(triton.cdiv(columns, 32), dtype=torch.int32, device=x.device)
        column_sum_kernel[(triton.cdiv(columns, 32), triton.cdiv(rows, 16))](
            x, part, count, y, rows, columns, ROWS=16, COLUMNS=32
        )
        return y
