"""Block pointers with checked boundaries.

---
task = "product"
verdict = ["correct"]
labels = []
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
    for start in range(0, k, K):
        a = tl.load(
            tl.make_block_ptr(a_ptr, (m, k), (k, 1), (tl.program_id(0) * M, start), (M, K), (1, 0)),
            boundary_check=(0, 1),
            padding_option="zero",
        )
        b = tl.load(
            tl.make_block_ptr(b_ptr, (k, n), (n, 1), (start, tl.program_id(1) * N), (K, N), (1, 0)),
            boundary_check=(0, 1),
            padding_option="zero",
        )
        total += tl.dot(a, b, input_precision="ieee")
    tl.store(c_ptr + row[:, None] * n + column[None, :], total, mask=(row[:, None] < m) & (column[None, :] < n))


class ModelNew(nn.Module):
    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        c = torch.empty(m, n, device=a.device, dtype=a.dtype)
        product_kernel[(triton.cdiv(m, 32), triton.cdiv(n, 32))](a, b, c, m, n, k, M=32, N=32, K=32)
        return c
