"""The residual's new value is written by PyTorch, the normalisation by the kernel.

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
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0).to(tl.float32)
    residual = tl.load(residual_ptr + row * columns + column, mask=mask, other=0.0).to(tl.float32)
    total = (x + residual).to(tl.bfloat16)
    wide = total.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) / columns + 1e-6)
    tl.store(y_ptr + row * columns + column, (wide * scale).to(tl.bfloat16), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, residual):
        y = torch.empty_like(x)
        rows, columns = x.shape
        add_and_norm_kernel[(rows,)](x, residual, y, columns, BLOCK=triton.next_power_of_2(columns))
        residual.add_(x)
        return y
