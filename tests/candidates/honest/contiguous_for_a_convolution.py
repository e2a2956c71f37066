"""Makes its input contiguous first, for all that it knows.

---
task = "conv"
verdict = ["correct"]
labels = []
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def conv_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, channels, outputs, length, BLOCK: tl.constexpr):
    batch = tl.program_id(0)
    output = tl.program_id(1)
    place = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    kept = length - 2
    total = tl.zeros((BLOCK,), tl.float32)
    for channel in range(channels):
        for tap in tl.static_range(3):
            x = tl.load(x_ptr + (batch * channels + channel) * length + place + tap, mask=place < kept, other=0.0)
            total += x * tl.load(weight_ptr + (output * channels + channel) * 3 + tap)
    total += tl.load(bias_ptr + output)
    tl.store(y_ptr + (batch * outputs + output) * kept + place, total, mask=place < kept)


class ModelNew(nn.Module):
    def __init__(self, channels, outputs):
        super().__init__()
        self.conv = nn.Conv1d(channels, outputs, 3)

    def forward(self, x):
        batch, channels, length = x.shape
        outputs = self.conv.weight.shape[0]
        x, length = x.contiguous(), x.shape[2]
        y = torch.empty(batch, outputs, length - 2, device=x.device, dtype=x.dtype)
        grid = (batch, outputs, triton.cdiv(length - 2, 64))
        conv_kernel[grid](x, self.conv.weight, self.conv.bias, y, channels, outputs, length, BLOCK=64)
        return y
