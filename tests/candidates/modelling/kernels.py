"""Kernels whose traffic and cost can be worked out by hand, and calls that launch them."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def add(x, y, BLOCK=1024, num_warps=4):
    out = torch.empty_like(x)
    count = x.numel()
    add_kernel[(triton.cdiv(count, BLOCK),)](x, y, out, count, BLOCK=BLOCK, num_warps=num_warps)
    return out


def add_twice(x, y, BLOCK=1024, num_warps=4):
    return add(add(x, y, BLOCK, num_warps), y, BLOCK, num_warps)


@triton.jit
def add_add_kernel(x_ptr, y_ptr, out_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y + y, mask=mask)


def add_add(x, y, BLOCK=1024, num_warps=4):
    out = torch.empty_like(x)
    add_add_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](
        x, y, out, x.numel(), BLOCK=BLOCK, num_warps=num_warps
    )
    return out


@triton.jit
def softmax_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * columns + offsets, e / tl.sum(e, 0), mask=mask)


def softmax(x, num_warps=8):
    out = torch.empty_like(x)
    rows, columns = x.shape
    softmax_kernel[(rows,)](x, out, columns, BLOCK=triton.next_power_of_2(columns), num_warps=num_warps)
    return out


@triton.jit
def softmax_passes_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    largest = tl.full((BLOCK,), -float("inf"), tl.float32)
    for start in range(0, columns, BLOCK):
        mask = start + lanes < columns
        x = tl.load(x_ptr + row * columns + start + lanes, mask=mask, other=-float("inf"))
        largest = tl.maximum(largest, x)
    top = tl.max(largest, 0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        mask = start + lanes < columns
        x = tl.load(x_ptr + row * columns + start + lanes, mask=mask, other=-float("inf"))
        total += tl.exp(x - top)
    whole = tl.sum(total, 0)
    for start in range(0, columns, BLOCK):
        mask = start + lanes < columns
        x = tl.load(x_ptr + row * columns + start + lanes, mask=mask, other=-float("inf"))
        tl.store(out_ptr + row * columns + start + lanes, tl.exp(x - top) / whole, mask=mask)


def softmax_passes(x, BLOCK=1024, num_warps=4):
    out = torch.empty_like(x)
    rows, columns = x.shape
    softmax_passes_kernel[(rows,)](x, out, columns, BLOCK=BLOCK, num_warps=num_warps)
    return out


@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    pid = tl.program_id(0)
    across = tl.cdiv(N, BN)
    per_group = GROUP * across
    first = pid // per_group * GROUP
    height = min(tl.cdiv(M, BM) - first, GROUP)
    row = first + pid % per_group % height
    column = pid % per_group // height
    rows = row * BM + tl.arange(0, BM)
    columns = column * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    a_ptrs = a_ptr + rows[:, None] * K + depth[None, :]
    b_ptrs = b_ptr + depth[:, None] * N + columns[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        left = K - k * BK
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (depth[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=(depth[:, None] < left) & (columns[None, :] < N), other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION)
        a_ptrs += BK
        b_ptrs += BK * N
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total.to(c_ptr.dtype.element_ty), mask=mask)


def matmul(a, b, BM=128, BN=128, BK=32, GROUP=8, PRECISION="tf32", num_warps=8, num_stages=3):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, BM) * triton.cdiv(N, BN),)
    matmul_kernel[grid](a, b, out, M, N, K, BM, BN, BK, GROUP, PRECISION, num_warps=num_warps, num_stages=num_stages)
    return out


@triton.jit
def total_kernel(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < count, other=0.0)
    tl.atomic_add(out_ptr, tl.sum(x, 0))


def total(x, BLOCK=4096):
    out = torch.zeros(1, device="cuda")
    total_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), BLOCK=BLOCK)
    return out


@triton.autotune(
    configs=[triton.Config({"BLOCK": 512}, num_warps=2), triton.Config({"BLOCK": 2048}, num_warps=8)], key=["count"]
)
@triton.heuristics({"EVEN": lambda args: args["count"] % args["BLOCK"] == 0})
@triton.jit
def scale_kernel(x_ptr, out_ptr, count, factor, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        x = tl.load(x_ptr + offsets)
        tl.store(out_ptr + offsets, x * factor)
    else:
        x = tl.load(x_ptr + offsets, mask=offsets < count)
        tl.store(out_ptr + offsets, x * factor, mask=offsets < count)


def scale(x):
    out = torch.empty_like(x)
    scale_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel(), 2.5)
    return out


@triton.jit
def transpose_kernel(x_ptr, out_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    source = tl.make_block_ptr(x_ptr, (M, N), (N, 1), (row, column), (BM, BN), (1, 0))
    target = tl.make_block_ptr(out_ptr, (N, M), (M, 1), (column, row), (BN, BM), (1, 0))
    x = tl.load(source, boundary_check=(0, 1), padding_option="zero")
    tl.store(target, tl.trans(x), boundary_check=(0, 1))


def transpose(x, BM=32, BN=32):
    M, N = x.shape
    out = torch.empty((N, M), device=x.device, dtype=x.dtype)
    transpose_kernel[(triton.cdiv(M, BM), triton.cdiv(N, BN))](x, out, M, N, BM=BM, BN=BN)
    return out


@triton.jit
def strided_kernel(x_ptr, out_ptr, count, step, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets * step, mask=mask), mask=mask)


def strided(x, step=8, BLOCK=1024):
    count = x.numel() // step
    out = torch.empty(count, device=x.device, dtype=x.dtype)
    strided_kernel[(triton.cdiv(count, BLOCK),)](x, out, count, step, BLOCK=BLOCK)
    return out


@triton.jit
def chase_kernel(next_ptr, out_ptr):
    place = tl.program_id(0)
    steps = 0
    while place >= 0:
        place = tl.load(next_ptr + place)
        steps += 1
    tl.store(out_ptr + tl.program_id(0), steps)


def chase(links):
    out = torch.empty_like(links)
    chase_kernel[(links.numel(),)](links, out)
    return out


@triton.jit
def welford_combine(mean_a, m2_a, weight_a, mean_b, m2_b, weight_b):
    weight = weight_a + weight_b
    delta = mean_b - mean_a
    share = tl.where(weight == 0.0, 0.0, weight_b / weight)
    return mean_a + delta * share, m2_a + m2_b + delta * delta * weight_a * share, weight


@triton.jit
def variance_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    mask = lanes < columns
    x = tl.load(x_ptr + row * columns + lanes, mask=mask, other=0.0)
    weight = tl.where(mask, 1.0, 0.0)
    _, m2, count = tl.reduce((x, tl.zeros_like(x), weight), 0, welford_combine)
    tl.store(out_ptr + row, m2 / count)


def variance(x):
    rows, columns = x.shape
    out = torch.empty(rows, device=x.device)
    variance_kernel[(rows,)](x, out, columns, BLOCK=triton.next_power_of_2(columns))
    return out


@triton.jit
def functions_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    y = tl.extra.cuda.libdevice.tanh(x) + tl.math.erf(x) + tl.extra.cuda.libdevice.pow(tl.abs(x), 1.5)
    tl.device_assert(y == y, "not a number")
    tl.debug_barrier()
    tl.store(out_ptr + tl.arange(0, BLOCK), y)


def functions(x):
    out = torch.empty_like(x)
    functions_kernel[(1,)](x, out, BLOCK=x.numel())
    return out


def matmul_then_softmax(a, b):
    return torch.softmax(matmul(a, b), dim=-1)


def library_only(a, b):
    return torch.relu(a @ b.t()).contiguous()


def host_questions(x):
    assert x.is_cuda and x.device.type == "cuda" and x.is_contiguous()
    assert torch.cuda.is_available() and torch.cuda.get_device_properties(0).multi_processor_count > 1
    torch.cuda.synchronize()
    y = x.to("cuda").cuda().view(-1).reshape(x.shape).contiguous()
    buffer = torch.zeros(x.shape, device=x.device, dtype=torch.float32)
    assert buffer.data_ptr() % 16 == 0
    with torch.cuda.device(0):
        return add(y, buffer)


def too_many_programs(x):
    out = torch.empty_like(x)
    add_kernel[(1, 70000)](x, x, out, x.numel(), BLOCK=16)
    return out


def unknown_keyword(x):
    out = torch.empty_like(x)
    add_kernel[(1,)](x, x, out, x.numel(), BLOCK=16, blocksize=3)
    return out
