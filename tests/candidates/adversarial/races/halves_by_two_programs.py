"""Each half is written by a program of its own, which may read what the other one has changed.

---
task = "rotate"
verdict = ["incorrect"]
labels = []
"""

import torch
import triton
import triton.language as tl


@triton.jit
def rotate_kernel(x_ptr, position_ptr, cosine_ptr, sine_ptr, HALF: tl.constexpr, BLOCK: tl.constexpr):
    token, head, heads = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    second_half = tl.program_id(2)
    column = tl.arange(0, BLOCK)
    mask = column < HALF
    position = tl.load(position_ptr + token)
    cosine = tl.load(cosine_ptr + position * HALF + column, mask=mask)
    sine = tl.load(sine_ptr + position * HALF + column, mask=mask)
    place = x_ptr + (token * heads + head) * 2 * HALF + column
    mine = tl.load(place + second_half * HALF, mask=mask).to(tl.float32)
    other = tl.load(place + (1 - second_half) * HALF, mask=mask).to(tl.float32)
    sign = 2.0 * second_half - 1.0
    tl.store(place + second_half * HALF, mine * cosine + sign * other * sine, mask=mask)


def rotate(query, key, position, cosine, sine):
    half = query.shape[-1] // 2
    for x in (query, key):
        grid = (*x.shape[:2], 2)
        rotate_kernel[grid](x, position, cosine, sine, HALF=half, BLOCK=triton.next_power_of_2(half))
