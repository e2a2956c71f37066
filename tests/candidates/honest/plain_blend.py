"""The plain way.

---
task = "blend"
verdict = ["correct"]
labels = []
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def blend_kernel(x_ptr, correction_ptr, y_ptr, size, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = place < size
    x = tl.load(x_ptr + place, mask=mask)
    correction = tl.load(correction_ptr + place, mask=mask)
    tl.store(y_ptr + place, tl.maximum(x, 0.0) + correction, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, correction):
        y = torch.empty_like(x)
        blend_kernel[(triton.cdiv(x.numel(), 256),)](x, correction, y, x.numel(), BLOCK=256)
        return y
