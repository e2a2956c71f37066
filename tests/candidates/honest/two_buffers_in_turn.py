"""Adds into one of two sums in turn, whose other one the kernel clears for the next call.

---
task = "column_sum"
verdict = ["correct"]
labels = ["nondeterministic"]
quick = true
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def column_sum_kernel(x_ptr, sum_ptr, next_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    mask = (row[:, None] < rows) & (column[None, :] < columns)
    x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=mask, other=0.0)
    tl.atomic_add(sum_ptr + column, tl.sum(x, axis=0), mask=column < columns)
    if tl.program_id(1) == 0:
        tl.store(next_ptr + column, tl.zeros((COLUMNS,), tl.float32), mask=column < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        if getattr(self, "sums", None) is None or self.sums[0].shape[0] != columns:
            self.sums = [torch.zeros(columns, device=x.device) for _ in range(2)]
        current, following = self.sums
        column_sum_kernel[(triton.cdiv(columns, 32), triton.cdiv(rows, 16))](
            x, current, following, rows, columns, ROWS=16, COLUMNS=32
        )
        self.sums.reverse()
        return current.clone()
