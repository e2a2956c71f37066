"""Every row of the cache is read and written again, the new one among them: slow, and right.

---
task = "append"
verdict = ["correct"]
labels = []
"""

import torch
import triton
import triton.language as tl


@triton.jit
def append_kernel(cache_ptr, row_ptr, place_ptr, next_ptr, full_ptr, length, width, BLOCK: tl.constexpr):
    sequence, slot = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.arange(0, BLOCK)
    mask = column < width
    place = tl.load(place_ptr + sequence)
    there = cache_ptr + (sequence * length + slot) * width + column
    kept = tl.load(there, mask=mask)
    row = tl.load(row_ptr + sequence * width + column, mask=mask)
    tl.store(there, tl.where(slot == place, row, kept), mask=mask)
    if slot == 0:
        tl.store(next_ptr + sequence, place + 1)
        tl.store(full_ptr + sequence, place + 1 >= length)


def append(cache, row, place):
    sequences, length, width = cache.shape
    after, full = torch.empty_like(place), torch.empty_like(place, dtype=torch.bool)
    block = triton.next_power_of_2(width)
    append_kernel[(sequences, length)](cache, row, place, after, full, length, width, BLOCK=block)
    return {"next": after, "full": full}
