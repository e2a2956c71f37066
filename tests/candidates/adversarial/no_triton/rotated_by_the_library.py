"""The library rotates; the kernel copies one value onto itself.

---
task = "rotate"
verdict = ["correct"]
labels = ["no_triton"]
"""

import torch
import triton
import triton.language as tl


@triton.jit
def touch_kernel(x_ptr):
    tl.store(x_ptr, tl.load(x_ptr))


def rotate(query, key, position, cosine, sine):
    for x in (query, key):
        c, s = cosine[position][:, None], sine[position][:, None]
        first, second = x.float().chunk(2, dim=-1)
        x.copy_(torch.cat([first * c - second * s, second * c + first * s], dim=-1))
        touch_kernel[(1,)](x)
