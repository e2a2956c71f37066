"""The library puts the row into the cache; the kernel says what comes next.

---
task = "append"
verdict = ["correct"]
labels = []
"""

import torch
import triton
import triton.language as tl


@triton.jit
def next_kernel(place_ptr, next_ptr, full_ptr, sequences, length, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < sequences
    after = tl.load(place_ptr + index, mask=mask) + 1
    tl.store(next_ptr + index, after, mask=mask)
    tl.store(full_ptr + index, after >= length, mask=mask)


def append(cache, row, place):
    sequences, length, _ = cache.shape
    cache.scatter_(1, place[:, None, None].expand(-1, 1, cache.shape[2]), row[:, None])
    after, full = torch.empty_like(place), torch.empty_like(place, dtype=torch.bool)
    next_kernel[(triton.cdiv(sequences, 64),)](place, after, full, sequences, length, BLOCK=64)
    return {"next": after, "full": full}
