"""The rotated values are made in memory of their own and copied into place by the library.

---
task = "rotate"
verdict = ["correct"]
labels = []
"""

import torch
import triton
import triton.language as tl


@triton.jit
def rotate_kernel(x_ptr, y_ptr, position_ptr, cosine_ptr, sine_ptr, HALF: tl.constexpr, BLOCK: tl.constexpr):
    token, head, heads = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    column = tl.arange(0, BLOCK)
    mask = column < HALF
    position = tl.load(position_ptr + token)
    cosine = tl.load(cosine_ptr + position * HALF + column, mask=mask)
    sine = tl.load(sine_ptr + position * HALF + column, mask=mask)
    offset = (token * heads + head) * 2 * HALF + column
    place = x_ptr + offset
    first = tl.load(place, mask=mask).to(tl.float32)
    second = tl.load(place + HALF, mask=mask).to(tl.float32)
    tl.store(y_ptr + offset, first * cosine - second * sine, mask=mask)
    tl.store(y_ptr + offset + HALF, second * cosine + first * sine, mask=mask)


def rotate(query, key, position, cosine, sine):
    half = query.shape[-1] // 2
    for x in (query, key):
        y = torch.empty_like(x)
        rotate_kernel[x.shape[:2]](x, y, position, cosine, sine, HALF=half, BLOCK=triton.next_power_of_2(half))
        x.copy_(y)
