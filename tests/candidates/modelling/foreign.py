"""Kernels as people write them elsewhere: descriptors, libdevice, random numbers, scans, online softmax."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, count, scale, WIDTH: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    lanes = tl.arange(0, WIDTH)
    q = tl.load(q_ptr + rows[:, None] * WIDTH + lanes[None, :], mask=rows[:, None] < count, other=0.0)
    largest = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    out = tl.zeros((BM, WIDTH), tl.float32)
    for start in tl.range(0, count, BN):
        keys = start + tl.arange(0, BN)
        k = tl.load(k_ptr + keys[:, None] * WIDTH + lanes[None, :], mask=keys[:, None] < count, other=0.0)
        v = tl.load(v_ptr + keys[:, None] * WIDTH + lanes[None, :], mask=keys[:, None] < count, other=0.0)
        scores = tl.where(keys[None, :] < count, tl.dot(q, tl.trans(k)) * scale, -float("inf"))
        new = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp(scores - new[:, None])
        shrink = tl.exp(largest - new)
        total = total * shrink + tl.sum(weights, 1)
        out = out * shrink[:, None] + tl.dot(weights, v)
        largest = new
    tl.store(out_ptr + rows[:, None] * WIDTH + lanes[None, :], out / total[:, None], mask=rows[:, None] < count)


def attention(q, k, v, BM=64, BN=64):
    out = torch.empty_like(q)
    count, width = q.shape
    attention_kernel[(triton.cdiv(count, BM),)](q, k, v, out, count, width**-0.5, WIDTH=width, BM=BM, BN=BN)
    return out


@triton.jit
def pool_kernel(x_ptr, out_ptr, H, W, OH, OW, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    column, row, image = place % OW, place // OW % OH, place // (OW * OH)
    best = tl.full((BLOCK,), -float("inf"), tl.float32)
    for i in tl.static_range(3):
        for j in tl.static_range(3):
            h = row * 2 - 1 + i
            w = column * 2 - 1 + j
            mask = inside & (h >= 0) & (h < H) & (w >= 0) & (w < W)
            best = tl.maximum(best, tl.load(x_ptr + image * H * W + h * W + w, mask=mask, other=-float("inf")))
    tl.store(out_ptr + place, best, mask=inside)


def pool(x):
    images, channels, H, W = x.shape
    out = torch.empty((images, channels, (H - 1) // 2 + 1, (W - 1) // 2 + 1), device=x.device)
    pool_kernel[(triton.cdiv(out.numel(), 1024),)](x, out, H, W, *out.shape[2:], out.numel(), BLOCK=1024)
    return out


@triton.jit
def own_descriptor_kernel(x_ptr, out_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [BM, BN])
    out = tl.make_tensor_descriptor(out_ptr, [M, N], [N, 1], [BM, BN])
    place = [tl.program_id(0) * BM, tl.program_id(1) * BN]
    out.store(place, x.load(place) + 1.0)


def own_descriptors(x):
    out = torch.empty_like(x)
    M, N = x.shape
    own_descriptor_kernel[(triton.cdiv(M, 32), triton.cdiv(N, 64))](x, out, M, N, BM=32, BN=64)
    return out


@triton.jit
def given_descriptor_kernel(x, out, BM: tl.constexpr, BN: tl.constexpr):
    place = [tl.program_id(0) * BM, tl.program_id(1) * BN]
    out.store(place, x.load(place) + 1.0)


def given_descriptors(x):
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.shape[0], 32), triton.cdiv(x.shape[1], 64))
    source, target = TensorDescriptor.from_tensor(x, [32, 64]), TensorDescriptor.from_tensor(out, [32, 64])
    given_descriptor_kernel[grid](source, target, BM=32, BN=64)
    return out


@triton.jit
def mixture_kernel(x_ptr, out_ptr, seed, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + lanes)
    largest, place = tl.max(x, 0, return_indices=True)
    nothing = tl.rand(seed, lanes) + tl.cumsum(x, 0) + tl.sort(x) + tl.softmax(x) + largest + place + tl.argmax(x, 0)
    y = tl.sigmoid(x) + libdevice.rsqrt(tl.abs(x) + 1.0) + tl.clamp(x, 0.0, 1.0)
    tl.store(out_ptr + lanes, tl.math.fma(nothing, 0.0, y))


def mixture(x):
    out = torch.empty_like(x)
    mixture_kernel[(1,)](x, out, 1234, BLOCK=x.numel())
    return out


@triton.jit
def stride_kernel(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    for tile in range(tl.program_id(0), tl.cdiv(count, BLOCK), tl.num_programs(0)):
        offsets = tile * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < count) * 2, mask=offsets < count)


def persistent(x):
    out = torch.empty_like(x)
    programs = torch.cuda.get_device_properties(x.device).multi_processor_count
    stride_kernel[(programs,)](x, out, x.numel(), BLOCK=1024)
    return out
