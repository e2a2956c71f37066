"""The table of cosines, which no caller expects to change, is made exact on the way.

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
    column = tl.arange(0, BLOCK)
    mask = column < HALF
    position = tl.load(position_ptr + token)
    cosine = tl.load(cosine_ptr + position * HALF + column, mask=mask)
    sine = tl.load(sine_ptr + position * HALF + column, mask=mask)
    place = x_ptr + (token * heads + head) * 2 * HALF + column
    first = tl.load(place, mask=mask).to(tl.float32)
    second = tl.load(place + HALF, mask=mask).to(tl.float32)
    tl.store(place, first * cosine - second * sine, mask=mask)
    tl.store(place + HALF, second * cosine + first * sine, mask=mask)


def rotate(query, key, position, cosine, sine):
    half = query.shape[-1] // 2
    cosine.copy_(cosine / (cosine * cosine + sine * sine).sqrt())
    for x in (query, key):
        rotate_kernel[x.shape[:2]](x, position, cosine, sine, HALF=half, BLOCK=triton.next_power_of_2(half))
