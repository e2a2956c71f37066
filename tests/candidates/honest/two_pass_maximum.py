"""The largest value first, then the first place that holds it.

---
task = "largest"
verdict = ["correct"]
labels = []
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def largest_kernel(x_ptr, value_ptr, place_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=float("-inf"))
    value = tl.max(x, axis=0)
    place = tl.min(tl.where(x == value, column, BLOCK), axis=0)
    tl.store(value_ptr + row, value)
    tl.store(place_ptr + row, place.to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        values = torch.empty(rows, device=x.device, dtype=x.dtype)
        places = torch.empty(rows, device=x.device, dtype=torch.int64)
        largest_kernel[(rows,)](x, values, places, columns, BLOCK=triton.next_power_of_2(columns))
        return values, places
