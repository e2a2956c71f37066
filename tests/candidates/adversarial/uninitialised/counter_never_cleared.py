"""Counts upwards from whatever the output holds.

---
task = "moments"
verdict = ["incorrect"]
labels = []
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def moments_kernel(x_ptr, mean_ptr, variance_ptr, positive_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / columns
    centred = tl.where(mask, x - mean, 0.0)
    tl.store(mean_ptr + row, mean)
    tl.store(variance_ptr + row, tl.sum(centred * centred, axis=0) / columns)
    tl.atomic_add(positive_ptr + row, tl.sum((x > 0).to(tl.int64), axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        mean = torch.empty(rows, device=x.device, dtype=x.dtype)
        variance = torch.empty_like(mean)
        positive = torch.empty(rows, device=x.device, dtype=torch.int64)
        moments_kernel[(rows,)](x, mean, variance, positive, columns, BLOCK=triton.next_power_of_2(columns))
        return {"mean": mean, "variance": variance, "positive": positive}
