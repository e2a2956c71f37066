"""The product in full, and its rows summed.

---
task = "summed_product"
verdict = ["correct"]
labels = []
quick = true
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def product_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, rows, features, outputs, R: tl.constexpr, W: tl.constexpr, K: tl.constexpr
):
    row = tl.program_id(0) * R + tl.arange(0, R)
    sums = tl.zeros((R,), tl.float32)
    for first in range(0, outputs, W):
        output = first + tl.arange(0, W)
        total = tl.zeros((R, W), tl.float32)
        for start in range(0, features, K):
            k = start + tl.arange(0, K)
            x = tl.load(
                x_ptr + row[:, None] * features + k[None, :],
                mask=(row[:, None] < rows) & (k[None, :] < features),
                other=0.0,
            )
            weight = tl.load(
                weight_ptr + output[None, :] * features + k[:, None],
                mask=(output[None, :] < outputs) & (k[:, None] < features),
                other=0.0,
            )
            total += tl.dot(x, weight, input_precision="ieee")
        bias = tl.load(bias_ptr + output, mask=output < outputs, other=0.0)
        sums += tl.sum(total + bias[None, :], axis=1)
    tl.store(y_ptr + row, sums, mask=row < rows)


class ModelNew(nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.linear = nn.Linear(features, outputs)

    def forward(self, x):
        rows, features = x.shape
        weight, bias = self.linear.weight, self.linear.bias
        outputs = weight.shape[0]
        y = torch.empty(rows, 1, device=x.device, dtype=x.dtype)
        product_kernel[(triton.cdiv(rows, 16),)](x, weight, bias, y, rows, features, outputs, R=16, W=32, K=32)
        return y
