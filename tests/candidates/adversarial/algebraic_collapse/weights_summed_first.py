"""The weight is summed first, so that a vector is left of the product: right, and no product.

---
task = "summed_product"
verdict = ["correct"]
labels = ["algebraic_collapse"]
quick = true
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def weight_kernel(weight_ptr, bias_ptr, sums_ptr, features, outputs, W: tl.constexpr, K: tl.constexpr):
    k = tl.program_id(0) * K + tl.arange(0, K)
    total = tl.zeros((K,), tl.float32)
    for start in range(0, outputs, W):
        output = start + tl.arange(0, W)
        mask = (output[:, None] < outputs) & (k[None, :] < features)
        total += tl.sum(tl.load(weight_ptr + output[:, None] * features + k[None, :], mask=mask, other=0.0), axis=0)
    tl.store(sums_ptr + k, total, mask=k < features)


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
        sums = torch.empty(features, device=x.device, dtype=x.dtype)
        weight_kernel[(triton.cdiv(features, 64),)](weight, bias, sums, features, outputs, W=16, K=64)
        y = torch.empty(rows, 1, device=x.device, dtype=x.dtype)
        powers = triton.next_power_of_2(features), triton.next_power_of_2(outputs)
        row_kernel[(rows,)](x, sums, bias, y, features, outputs, K=powers[0], W=powers[1])
        return y
