"""Each program takes two rows, the last one perhaps only one.

---
task = "rms_norm_fp16"
verdict = ["correct"]
labels = []
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr):
    row = (tl.program_id(0) * 2 + tl.arange(0, 2))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    mask = (column < columns) & (row < rows)
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=1)[:, None] / columns + 1e-6)
    weight = tl.load(weight_ptr + column, mask=column < columns).to(tl.float32)
    tl.store(y_ptr + row * columns + column, (x * scale * weight).to(tl.float16), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns, dtype=torch.float16))

    def forward(self, x):
        y = torch.empty_like(x)
        rows, columns = x.shape
        rms_norm_kernel[(triton.cdiv(rows, 2),)](
            x, self.weight, y, rows, columns, BLOCK=triton.next_power_of_2(columns)
        )
        return y
