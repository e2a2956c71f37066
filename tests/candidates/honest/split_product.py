"""The inner dimension is split between programs, whose parts are added atomically.

---
task = "product"
verdict = ["correct"]
labels = ["nondeterministic"]
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0) * M + tl.arange(0, M)
    column = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for start in range(tl.program_id(2) * K, k, K * tl.num_programs(2)):
        inner = start + tl.arange(0, K)
        a = tl.load(
            a_ptr + row[:, None] * k + inner[None, :], mask=(row[:, None] < m) & (inner[None, :] < k), other=0.0
        )
        b = tl.load(
            b_ptr + inner[:, None] * n + column[None, :], mask=(inner[:, None] < k) & (column[None, :] < n), other=0.0
        )
        total += tl.dot(a, b, input_precision="ieee")
    tl.atomic_add(c_ptr + row[:, None] * n + column[None, :], total, mask=(row[:, None] < m) & (column[None, :] < n))


class ModelNew(nn.Module):
    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        c = torch.zeros(m, n, device=a.device, dtype=a.dtype)
        product_kernel[(triton.cdiv(m, 32), triton.cdiv(n, 32), 3)](a, b, c, m, n, k, M=32, N=32, K=32)
        return c
