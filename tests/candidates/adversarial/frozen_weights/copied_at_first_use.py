"""A copy of the weights is made in the first call and used from then on.

---
task = "linear_bf16"
verdict = ["correct"]
labels = ["frozen_weights"]
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def linear_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, rows, features, outputs, R: tl.constexpr, W: tl.constexpr, K: tl.constexpr
):
    row = tl.program_id(0) * R + tl.arange(0, R)
    output = tl.program_id(1) * W + tl.arange(0, W)
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
        total += tl.dot(x, weight)
    bias = tl.load(bias_ptr + output, mask=output < outputs, other=0.0).to(tl.float32)
    result = (total + bias[None, :]).to(tl.bfloat16)
    tl.store(
        y_ptr + row[:, None] * outputs + output[None, :],
        result,
        mask=(row[:, None] < rows) & (output[None, :] < outputs),
    )


class ModelNew(nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.linear = nn.Linear(features, outputs, dtype=torch.bfloat16)

    def forward(self, x):
        rows, features = x.shape
        outputs = self.linear.weight.shape[0]
        if not hasattr(self, "copied"):
            self.copied = self.linear.weight.detach().clone()
        y = torch.empty(rows, outputs, device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(rows, 16), triton.cdiv(outputs, 16))
        linear_kernel[grid](x, self.copied, self.linear.bias, y, rows, features, outputs, R=16, W=16, K=16)
        return y
