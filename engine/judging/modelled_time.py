"""Turns counted traffic and compiled code into microseconds, for machines without a GPU.

A deterministic model, not a measurement: it ranks candidates by what changes their time on a device
(bytes at each level of memory, tiles, vector width, occupancy, waves, pipelining, matrix units, number of
launches). Every launch is explained in `ModelledTime.parts`. Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.judging.devices import Device, device_for
from engine.judging.modelled_memory import LaunchBytes, RecentlyUsed, count_bytes

HOST_LAUNCH_US = 5.0
"""Microseconds of Python and driver for one launch or library call (eager PyTorch and Triton alike)."""

DEVICE_LAUNCH_US = 1.5
"""Microseconds between one kernel's end and the next one's first program (launch latency and drain)."""

PROGRAM_NS = 300.0
"""Nanoseconds a program takes besides its work: start, parameters, address arithmetic, last write."""

SHARED_BYTES_PER_CLOCK = 128
"""Bytes of shared memory or first-level cache that a multiprocessor reads in a clock (32 banks of 4 bytes)."""

FILL_BYTES_PER_CLOCK = 64
"""Bytes that a multiprocessor takes from the second-level cache in a clock."""

LOADED_LATENCY = 1.7
"""How much longer an access waits on a busy device than on an idle one."""

UNROLLED = 2.5
"""Iterations of a loop that only reads whose loads the compiler issues together; stores keep them apart."""

BARRIER_NS = 40.0
"""Nanoseconds for all warps of a program to meet, the shuffles of a reduction included."""

SPILLS_OF_HALF_TIME, MAX_SPILL_PENALTY = 160, 6.0
"""Spilled values a thread that cost half of a kernel's time again, and the most that spilling costs in all.

Each waits in the middle of a chain of dependent instructions, which the bytes alone do not show.
"""

UNIT_EFFICIENCY = {"wgmma": 0.80, "tcgen05": 0.80, "mma": 0.85, "fma": 0.50}
"""Share of the peak that a full pipeline of each kind of matrix instruction reaches."""

LIBRARY_MATRIX_EFFICIENCY = 0.75
LIBRARY_MEMORY_EFFICIENCY = 0.92


class ModelError(ValueError):
    """The trace and the compiled kernels do not belong together, or cannot run on the device."""


@dataclass(frozen=True, slots=True)
class ModelledTime:
    """Microseconds of one call, and for each launch and library call what its time is made of."""

    time_us: float
    parts: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How many programs a multiprocessor holds at a time, and what stops it from holding more."""

    programs: int
    limit: str


def occupancy(kernel: Mapping[str, Any], device: Device) -> Occupancy:
    """Programs of a kernel that fit on one multiprocessor at a time.

    Registers are given out in units of 256 a warp, shared memory costs 1 KiB more than was asked for
    (CUDA occupancy calculator).
    """
    warps = int(kernel["num_warps"])
    registers = max(16, -(-int(kernel["registers"]) // 8) * 8)
    per_program = warps * -(-registers * 32 // 256) * 256
    shared = int(kernel["shared_bytes"]) + 1024
    limits = {
        "programs": device.programs,
        "threads": device.threads // (warps * 32),
        "registers": device.registers // per_program,
        "shared": device.shared_bytes // shared,
    }
    limit = min(limits, key=lambda name: limits[name])
    if limits[limit] < 1:
        raise ModelError(f"kernel {kernel['kernel']} does not fit on {device.arch}: too many {limit}")
    return Occupancy(limits[limit], limit)


def modelled_time_us(
    trace: Sequence[Mapping[str, Any]],
    kernels: Sequence[Mapping[str, Any]],
    arch: str,
    bound: Mapping[str, Any] | None = None,
) -> ModelledTime:
    """Models one call of a candidate.

    Args:
        trace: launches with traffic and library calls in order, as JSON (`recorder.sampling`).
        kernels: what the compile nursery says of each distinct launch.
        arch: the architecture, such as `sm_90`.
        bound: the reference's lower bound (`count_reference`); the time is never below its time.

    Raises:
        ModelError: for a launch whose kernel was not compiled or cannot run.
        ValueError: for an architecture without figures.
    """
    device = device_for(arch)
    by_key = {str(kernel["key"]): kernel for kernel in kernels}
    recent = RecentlyUsed(device.l2_bytes)
    parts: list[Mapping[str, Any]] = []
    for entry in trace:
        if entry.get("kind") == "library":
            # Candidates run with strict float32, so their library products are as slow as the baseline's.
            parts.append(_library_part(entry, device, recent, "exact"))
        elif str(entry["key"]) not in by_key:
            raise ModelError(f"kernel {entry['kernel']} was launched but not compiled")
        else:
            parts.append(_launch_part(entry, by_key[str(entry["key"])], device, recent))
    total = _call_time(parts)
    if bound is not None:
        total = max(total, bound_time_us(bound, device))
    return ModelledTime(time_us=round(total, 3), parts=tuple(parts))


def reference_times_us(
    calls: Sequence[Mapping[str, Any]], bound: Mapping[str, Any], arch: str, tier: str = "exact"
) -> dict[str, float]:
    """Microseconds of the reference as eager library calls, and of the bound for any fused form.

    Args:
        calls: library calls of the reference as JSON.
        bound: `bytes` that must move and `flops` of matrix products in `dtype`.
        arch: the architecture, such as `sm_90`.
        tier: precision of float32 matrix products in the eager form: `exact` without tensor cores,
            `reduced` with TF32, `bf16` with bfloat16. The bound allows the fastest of exact and reduced,
            and bfloat16 only in its own tier.
    """
    device = device_for(arch)
    recent = RecentlyUsed(device.l2_bytes)
    eager = _call_time([_library_part(call, device, recent, tier) for call in calls])
    lower = bound_time_us(bound, device, _bound_tier(tier))
    return {"eager": round(max(eager, lower), 3), "bound": round(lower, 3)}


def reference_bound_by(bound: Mapping[str, Any], arch: str, tier: str = "exact") -> str:
    """What the bound of `reference_times_us` comes from: `memory` or `compute`."""
    parts = bound_parts_us(bound, device_for(arch), _bound_tier(tier))
    return max(parts, key=parts.__getitem__)


def _bound_tier(tier: str) -> str:
    return "bf16" if tier == "bf16" else "reduced"


def bound_time_us(bound: Mapping[str, Any], device: Device, tier: str = "reduced") -> float:
    """Microseconds below which no form of the task can be: bytes over bandwidth, operations over peak."""
    return max(bound_parts_us(bound, device, tier).values())


def bound_parts_us(bound: Mapping[str, Any], device: Device, tier: str = "reduced") -> dict[str, float]:
    """What the bound is the larger of: microseconds of `memory` and of `compute`."""
    flops = float(bound.get("flops", 0.0))
    return {
        "memory": float(bound["bytes"]) / device.dram_bandwidth * 1e6,
        "compute": flops / _matrix_peak(str(bound.get("dtype", "float32")), device, tier) * 1e6,
    }


def _call_time(parts: Sequence[Mapping[str, Any]]) -> float:
    """Host and device work side by side; the slower one decides, the other still shows a little."""
    on_device = math.fsum(float(part["device_us"]) for part in parts)
    return _norm(on_device, HOST_LAUNCH_US * len(parts))


def _norm(*values: float) -> float:
    """A maximum with rounded corners: rises with every argument, is never below the largest."""
    largest = max(values)
    if largest <= 0.0:
        return 0.0
    return float(largest * math.fsum((value / largest) ** 4 for value in values) ** 0.25)


def _matrix_peak(dtype: str, device: Device, tier: str) -> float:
    """Peak operations a second of matrix products on operands of a PyTorch dtype."""
    peaks = device.tensor_flops
    if dtype in ("float16", "half"):
        return peaks["fp16"]
    if dtype == "bfloat16":
        return peaks["bf16"]
    if dtype.startswith("float8"):
        return peaks.get("fp8", peaks["fp16"])
    if dtype == "float64":
        return peaks.get("fp64", device.fp64_flops)
    if dtype in ("int8", "uint8"):
        return peaks["int8"]
    return {"reduced": peaks["tf32"], "bf16": peaks["bf16"]}.get(tier, device.fp32_flops)


def _library_part(call: Mapping[str, Any], device: Device, recent: RecentlyUsed, tier: str) -> dict[str, Any]:
    reads = {str(key): float(size) for key, size in call["reads"].items()}
    writes = {str(key): float(size) for key, size in call["writes"].items()}
    dram = recent.use(reads, writes)
    moved = float(call["read_bytes"]) + float(call["write_bytes"])
    slowdown = max(1.0, float(call["slowdown"]))
    matrix_peak = _matrix_peak(str(call["dtype"]), device, tier) * LIBRARY_MATRIX_EFFICIENCY
    times = {
        "dram": dram * slowdown / (device.dram_bandwidth * LIBRARY_MEMORY_EFFICIENCY),
        "l2": moved * slowdown / device.l2_bandwidth,
        "matrix": float(call["flops"]) * slowdown / matrix_peak,
        "arithmetic": float(call["operations"]) / (device.fp32_flops * 0.5),
    }
    return {
        "kind": "library",
        "name": call["op"],
        "device_us": _norm(*times.values()) * 1e6 + DEVICE_LAUNCH_US,
        "dram_bytes": dram,
        "l2_bytes": moved,
        "flops": float(call["flops"]),
        "limit": max(times, key=lambda name: times[name]),
    }


def _launch_part(
    launch: Mapping[str, Any], kernel: Mapping[str, Any], device: Device, recent: RecentlyUsed
) -> dict[str, Any]:
    traffic = launch["traffic"]
    programs = int(traffic["programs"])
    resident = occupancy(kernel, device)
    on_one = min(resident.programs, -(-programs // device.multiprocessors))
    at_once = min(programs, resident.programs * device.multiprocessors)
    moved = count_bytes(traffic, kernel, device, on_one, at_once)
    dram = recent.use(moved.first_reads, moved.writes) + moved.repeated_dram
    phases = max(1.0, float(traffic["phases"]) / programs)
    stages = _pipeline_stages(kernel, phases)
    memory = _memory_times(moved, dram, programs, kernel, device)
    compute = _compute_times(traffic, kernel, programs, device)
    latency = _latency_time(traffic, kernel, moved, dram, programs, at_once, phases, stages, device)
    times = {**memory, **compute, "latency": latency}
    slowest_memory = max(memory.values())
    # Within a program products and the rest follow each other; programs on the same multiprocessor take turns.
    products = max(compute["matrix"], compute["shared"])
    plain = max(compute["arithmetic"], compute["special"], compute["fp64"])
    slowest_compute = max(products, plain) + min(products, plain) / on_one
    # What cannot hide behind the slower side: less, the more programs or stages take turns.
    exposed = min(slowest_memory, slowest_compute) / (on_one * stages)
    spilling = 1.0 + min(MAX_SPILL_PENALTY, int(kernel["spills"]) / SPILLS_OF_HALF_TIME * 0.5)
    seconds = (_norm(slowest_memory, slowest_compute, latency) + exposed) * spilling
    return {
        "kind": "launch",
        "name": launch["kernel"],
        "device_us": seconds * 1e6 + DEVICE_LAUNCH_US,
        "dram_bytes": dram,
        "l2_bytes": moved.l2,
        "l1_bytes": moved.l1,
        "flops": matrix_flops(traffic),
        "programs": programs,
        "occupancy": on_one * int(kernel["num_warps"]) * 32 / device.threads,
        "occupancy_limit": resident.limit,
        "waves": programs / (resident.programs * device.multiprocessors),
        "phases": phases,
        "pipeline_stages": stages,
        "times_us": {name: value * 1e6 for name, value in times.items()},
        "limit": max(times, key=lambda name: times[name]),
    }


def _pipeline_stages(kernel: Mapping[str, Any], phases: float) -> float:
    """Loop iterations under way at a time, the one that computes included: one, unless copies are asynchronous."""
    if phases <= 1.0 or not (kernel["copy_bytes"] or kernel["bulk_copies"]):
        return 1.0
    return max(1.0, min(float(kernel["num_stages"]), phases))


def _memory_times(
    moved: LaunchBytes, dram: float, programs: int, kernel: Mapping[str, Any], device: Device
) -> dict[str, float]:
    clock = device.clock_ghz * 1e9
    active = min(programs, device.multiprocessors)
    balance = _imbalance(programs, device)
    return {
        "dram": dram / (device.dram_bandwidth * _width_efficiency(kernel)),
        "l2": moved.l2 / device.l2_bandwidth,
        "fill": moved.l2 * balance / (active * FILL_BYTES_PER_CLOCK * clock),
        "l1": moved.l1 * balance / (active * SHARED_BYTES_PER_CLOCK * clock),
        "atomics": moved.atomic_seconds,
    }


def _imbalance(programs: int, device: Device) -> float:
    """Work of the busiest multiprocessor over the average of those at work."""
    active = min(programs, device.multiprocessors)
    return -(-programs // active) * active / programs


def _width_efficiency(kernel: Mapping[str, Any]) -> float:
    """Share of the bandwidth that accesses of the compiled width reach; narrow ones keep fewer bytes in flight."""
    shares = {16: 1.0, 8: 0.97, 4: 0.92, 2: 0.84, 1: 0.74}
    total = weighted = 0.0
    for counts in (kernel["load_bytes"], kernel["store_bytes"], kernel["copy_bytes"]):
        for size, count in counts.items():
            share = shares.get(int(size), 1.0)
            total += count * int(size)
            weighted += count * int(size) * share
    return weighted / total if total else 1.0


def matrix_flops(traffic: Mapping[str, Any]) -> float:
    """Floating-point operations of a launch's matrix products."""
    return math.fsum(2.0 * math.prod(dot["shape"]) * float(dot["count"]) for dot in traffic["dots"])


_PASSES = {"tf32x3": 3.0, "bf16x3": 3.0, "bf16x6": 6.0}


def _compute_times(
    traffic: Mapping[str, Any], kernel: Mapping[str, Any], programs: int, device: Device
) -> dict[str, float]:
    clock = device.clock_ghz * 1e9
    active = min(programs, device.multiprocessors)
    balance = _imbalance(programs, device)
    operations = {name: float(value) for name, value in traffic["operations"].items()}
    # Address arithmetic is done once for each vector access and hoisted out of loops by the compiler.
    lanes = (
        operations.get("fp32", 0.0)
        + operations.get("fp16", 0.0)
        + 1.5 * operations.get("reduce", 0.0)
        + 2.0 * operations.get("special", 0.0)
        + 0.15 * operations.get("int", 0.0)
        + 0.15 * operations.get("convert", 0.0)
        + 16.0 * _access_instructions(traffic, kernel)
    )
    times = {
        "arithmetic": lanes * balance / (active * 128 * clock),
        "special": operations.get("special", 0.0) * balance / (active * 16 * clock),
        "fp64": operations.get("fp64", 0.0) * balance * device.multiprocessors / (active * device.fp64_flops * 0.5),
        "matrix": 0.0,
        "shared": 0.0,
    }
    unit = kernel["dot"]
    for dot in traffic["dots"]:
        flops = 2.0 * math.prod(dot["shape"]) * float(dot["count"]) * _PASSES.get(dot["precision"], 1.0)
        if unit is None:
            peak, efficiency = device.fp32_flops, UNIT_EFFICIENCY["fma"]
        else:
            peak = device.tensor_flops.get(unit["type"], device.tensor_flops["fp16"])
            efficiency = UNIT_EFFICIENCY[unit["unit"]]
            if unit["unit"] == "mma" and device.capability >= 90:
                efficiency = 0.62  # the warp-level instruction does not reach Hopper's peak (arXiv 2402.13499)
        shared = _operand_bytes(dot, kernel) * float(dot["count"])
        shared *= balance / (active * SHARED_BYTES_PER_CLOCK * clock)
        times["shared"] += shared
        times["matrix"] += flops * balance * device.multiprocessors / (active * peak * efficiency)
        if unit is None:
            # Plain instructions load their operands themselves; a matrix unit does so on the side.
            times["matrix"] += shared
    return times


def _access_instructions(traffic: Mapping[str, Any], kernel: Mapping[str, Any]) -> float:
    """Global accesses as instructions of one warp, at the compiled average width."""
    total = count = 0.0
    for counts in (kernel["load_bytes"], kernel["store_bytes"], kernel["copy_bytes"]):
        for size, number in counts.items():
            total += int(size) * number
            count += number
    width = total / count if count else 16.0
    moved = math.fsum(float(flow["bytes"]) for region in traffic["regions"] for flow in region["flows"].values())
    return moved / width / 32


_ITEM_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}


def _operand_bytes(dot: Mapping[str, Any], kernel: Mapping[str, Any]) -> float:
    """Bytes of shared memory that one matrix product reads for its operands."""
    m, n, k = (int(size) for size in dot["shape"])
    item = _ITEM_BYTES.get(str(dot["dtype"]), 1)
    warps = int(kernel["num_warps"])
    unit = kernel["dot"]["unit"] if kernel["dot"] else "fma"
    if unit == "tcgen05":
        return float(m + n) * k * item
    if unit == "wgmma":
        # One instruction spans 64 rows and up to 256 columns and reads both operands from shared memory.
        return float(m * max(1, -(-n // 256)) + n * max(1, m // 64)) * k * item
    # Warps share out the rows and columns; each reads the rows and the columns of its own part.
    across = 2 ** (int(math.log2(warps)) // 2)
    down = warps // across
    across, down = min(across, max(1, n // 8)), min(down, max(1, m // 16))
    if unit == "fma":
        # A thread with a square of outputs loads a row and a column of operands for each step along k.
        outputs = max(1.0, m * n / (warps * 32))
        return float(m * n) * k * item * 2.0 / math.sqrt(outputs)
    return float(m * across + n * down) * k * item


def _waits(traffic: Mapping[str, Any], phases: float) -> float:
    """How often a program waits for memory, one time after another."""
    moved = {
        kind: math.fsum(
            float(region["flows"][kind]["bytes"]) for region in traffic["regions"] if kind in region["flows"]
        )
        for kind in ("load", "store", "atomic")
    }
    writing = min(1.0, (moved["store"] + moved["atomic"]) / moved["load"]) if moved["load"] else 1.0
    return max(1.0, phases * (writing + (1.0 - writing) / UNROLLED))


def _latency_time(
    traffic: Mapping[str, Any],
    kernel: Mapping[str, Any],
    moved: LaunchBytes,
    dram: float,
    programs: int,
    at_once: int,
    phases: float,
    stages: float,
    device: Device,
) -> float:
    """Seconds if nothing but waiting took time: waves of programs, each a chain of dependent loads."""
    share = min(1.0, dram / moved.l2) if moved.l2 > 0 else 0.0
    wait = device.l2_latency_ns + share * (device.dram_latency_ns - device.l2_latency_ns)
    reductions = float(traffic["operations"].get("reduce", 0.0)) > 0 and kernel["mix"]["barriers"] > 0
    barriers = float(kernel["mix"]["barriers"]) if reductions else 0.0
    matrix = math.fsum(float(dot["count"]) for dot in traffic["dots"]) / programs
    # A matrix instruction's latency is about 30 clocks, several of them back to back for each product.
    chain = (
        PROGRAM_NS
        + _waits(traffic, phases) * wait * LOADED_LATENCY / max(1.0, stages - 1.0)
        + barriers * BARRIER_NS
        + matrix * 64 * device.cycle_ns
    )
    return math.ceil(programs / at_once) * chain * 1e-9
