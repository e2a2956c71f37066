"""PyTorch sums the weight, the kernel multiplies a vector.

---
task = "summed_product"
verdict = ["correct"]
labels = ["algebraic_collapse"]
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def row_kernel(x_ptr, sums_ptr, bias_ptr, y_ptr, features, outputs, K: tl.constexpr, W: tl.constexpr):
    row = tl.program_id(0)
    k = tl.arange(0, K)
    x = tl.load(x_ptr + row * features + k, mask=k < features, other=0.0)
    sums = tl.load(sums_ptr + k, mask=k < features, other=0.0)
    output = tl.arange(0, W)
    bias = tl.load(bias_ptr + output, mask=output < outputs, other=0.0)
    tl.store(y_ptr + row, tl.sum(x * sums, axis=0) + tl.sum(bias, axis=0))


class ModelNew(nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.linear = nn.Linear(features, outputs)

    def forward(self, x):
        rows, features = x.shape
        weight, bias = self.linear.weight, self.linear.bias
        outputs = weight.shape[0]
        sums = weight.sum(dim=0)
        y = torch.empty(rows, 1, device=x.device, dtype=x.dtype)
        powers = triton.next_power_of_2(features), triton.next_power_of_2(outputs)
        row_kernel[(rows,)](x, sums, bias, y, features, outputs, K=powers[0], W=powers[1])
        return y
