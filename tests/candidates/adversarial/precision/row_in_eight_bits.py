"""The row loses most of its bits on the way into the cache.

---
task = "append"
verdict = ["incorrect"]
labels = ["reduced_precision"]
"""

import torch
import triton
import triton.language as tl


@triton.jit
def append_kernel(cache_ptr, row_ptr, place_ptr, next_ptr, full_ptr, length, width, BLOCK: tl.constexpr):
    sequence = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < width
    place = tl.load(place_ptr + sequence)
    row = tl.load(row_ptr + sequence * width + column, mask=mask)
    tl.store(cache_ptr + (sequence * length + place) * width + column, row.to(tl.float8e5).to(tl.bfloat16), mask=mask)
    tl.store(next_ptr + sequence, place + 1)
    tl.store(full_ptr + sequence, place + 1 >= length)


def append(cache, row, place):
    sequences, length, width = cache.shape
    after, full = torch.empty_like(place), torch.empty_like(place, dtype=torch.bool)
    block = triton.next_power_of_2(width)
    append_kernel[(sequences,)](cache, row, place, after, full, length, width, BLOCK=block)
    return {"next": after, "full": full}
