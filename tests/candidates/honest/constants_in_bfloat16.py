"""Sums, constants, comparisons and clamps in bfloat16, where each of them is exact.

---
task = "add_and_norm"
verdict = ["correct"]
labels = []
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def add_and_norm_kernel(x_ptr, residual_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=1.0)
    residual = tl.load(residual_ptr + row * columns + column, mask=mask, other=-1.0)
    total = (x + residual) * 2.0 * 0.5
    total = tl.where(total > 0.25, total, total * 1.0)
    total = tl.clamp(tl.maximum(total, -1024.0), -2048.0, 2048.0)
    tl.store(residual_ptr + row * columns + column, total, mask=mask)
    wide = total.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) / columns + 1e-6)
    tl.store(y_ptr + row * columns + column, (wide * scale).to(tl.bfloat16), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, residual):
        y = torch.empty_like(x)
        rows, columns = x.shape
        add_and_norm_kernel[(rows,)](x, residual, y, columns, BLOCK=triton.next_power_of_2(columns))
        return y
