"""The devices whose time is modelled: what one multiprocessor holds and how fast things move and compute.

Figures for computing are the vendor's dense peaks; bandwidths are what a plain copy reaches, not the
data sheet's, so that a bound made from them can be met. Only the standard library is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU. Bytes in bytes, rates a second (`tensor_flops` by operand type), latencies in nanoseconds.

    `registers`, `shared_bytes`, `threads` and `programs` are what one multiprocessor holds at a time;
    `shared_per_program` is the most one program may ask for.
    """

    name: str
    arch: str
    capability: int
    multiprocessors: int
    clock_ghz: float
    memory_bytes: int
    dram_bandwidth: float
    l2_bytes: int
    l2_bandwidth: float
    l1_bytes: int
    shared_bytes: int
    shared_per_program: int
    registers: int
    threads: int
    programs: int
    fp32_flops: float
    fp64_flops: float
    tensor_flops: Mapping[str, float]
    dram_latency_ns: float
    l2_latency_ns: float
    l1_latency_ns: float

    @property
    def cycle_ns(self) -> float:
        """Nanoseconds of one clock."""
        return 1.0 / self.clock_ghz


_KIB, _GIB = 1 << 10, 1 << 30

# Compute limits of a multiprocessor: CUDA C++ Programming Guide, table "Technical Specifications per Compute
# Capability" (registers 64 Ki, threads 2048 or 1536, programs 32, 16 or 24, shared memory 228, 164 or 100 KB).
DEVICES: dict[str, Device] = {
    # NVIDIA A100 80GB data sheet: 108 SMs, 1.41 GHz, 2.04 TB/s (a copy reaches about 87%), 40 MB of L2,
    # 19.5 TFLOP/s float32, 156 TF32, 312 half. Latencies: Sun et al., "Dissecting Tensor Cores", and
    # Luo et al., "Benchmarking and Dissecting the NVIDIA Hopper GPU Architecture", arXiv 2402.13499.
    "sm_80": Device(
        name="NVIDIA A100 80GB",
        arch="sm_80",
        capability=80,
        multiprocessors=108,
        clock_ghz=1.41,
        memory_bytes=80 * _GIB,
        dram_bandwidth=1.77e12,
        l2_bytes=40 << 20,
        l2_bandwidth=3.9e12,
        l1_bytes=192 * _KIB,
        shared_bytes=164 * _KIB,
        shared_per_program=163 * _KIB,
        registers=65536,
        threads=2048,
        programs=32,
        fp32_flops=19.5e12,
        fp64_flops=9.7e12,
        tensor_flops={"tf32": 156e12, "fp16": 312e12, "bf16": 312e12, "int8": 624e12, "fp64": 19.5e12},
        dram_latency_ns=480.0,
        l2_latency_ns=200.0,
        l1_latency_ns=27.0,
    ),
    # NVIDIA L40S data sheet and Ada whitepaper: 142 SMs, 2.52 GHz, 864 GB/s, 96 MB of L2, 91.6 TFLOP/s float32,
    # dense TF32 183, half 362; 1536 threads, 24 programs and 100 KB of shared memory on a multiprocessor.
    "sm_89": Device(
        name="NVIDIA L40S",
        arch="sm_89",
        capability=89,
        multiprocessors=142,
        clock_ghz=2.52,
        memory_bytes=48 * _GIB,
        dram_bandwidth=0.75e12,
        l2_bytes=96 << 20,
        l2_bandwidth=4.0e12,
        l1_bytes=128 * _KIB,
        shared_bytes=100 * _KIB,
        shared_per_program=99 * _KIB,
        registers=65536,
        threads=1536,
        programs=24,
        fp32_flops=91.6e12,
        fp64_flops=1.4e12,
        tensor_flops={"tf32": 183e12, "fp16": 362e12, "bf16": 362e12, "fp8": 733e12, "int8": 733e12},
        dram_latency_ns=540.0,
        l2_latency_ns=210.0,
        l1_latency_ns=17.0,
    ),
    # NVIDIA H200 data sheet: 4.8 TB/s (a copy was measured at 4.3), 67 TFLOP/s float32, dense TF32 495, half 990;
    # H100 whitepaper: 132 SMs, 1.98 GHz boost, 50 MB of L2, 228 KB of shared memory within 256 KB of L1.
    # Level 2 bandwidth and latencies: arXiv 2402.13499 (Hopper), rounded.
    "sm_90": Device(
        name="NVIDIA H200",
        arch="sm_90",
        capability=90,
        multiprocessors=132,
        clock_ghz=1.98,
        memory_bytes=141 * 10**9,
        dram_bandwidth=4.3e12,
        l2_bytes=50 << 20,
        l2_bandwidth=8.0e12,
        l1_bytes=256 * _KIB,
        shared_bytes=228 * _KIB,
        shared_per_program=227 * _KIB,
        registers=65536,
        threads=2048,
        programs=32,
        fp32_flops=67e12,
        fp64_flops=34e12,
        tensor_flops={
            "tf32": 495e12,
            "fp16": 990e12,
            "bf16": 990e12,
            "fp8": 1979e12,
            "int8": 1979e12,
            "fp64": 67e12,
        },
        dram_latency_ns=560.0,
        l2_latency_ns=150.0,
        l1_latency_ns=17.0,
    ),
    # NVIDIA B200 (Blackwell architecture brief): 148 SMs, 8 TB/s (a copy reaches about 90%), 126 MB of L2,
    # 75 TFLOP/s float32, dense TF32 1100, half 2250, FP8 4500.
    "sm_100": Device(
        name="NVIDIA B200",
        arch="sm_100",
        capability=100,
        multiprocessors=148,
        clock_ghz=1.96,
        memory_bytes=180 * 10**9,
        dram_bandwidth=7.2e12,
        l2_bytes=126 << 20,
        l2_bandwidth=10.0e12,
        l1_bytes=256 * _KIB,
        shared_bytes=228 * _KIB,
        shared_per_program=227 * _KIB,
        registers=65536,
        threads=2048,
        programs=32,
        fp32_flops=75e12,
        fp64_flops=37e12,
        tensor_flops={
            "tf32": 1100e12,
            "fp16": 2250e12,
            "bf16": 2250e12,
            "fp8": 4500e12,
            "int8": 4500e12,
            "fp64": 37e12,
        },
        dram_latency_ns=600.0,
        l2_latency_ns=180.0,
        l1_latency_ns=19.0,
    ),
}


def device_for(arch: str) -> Device:
    """The device that stands for an architecture; ValueError with the known ones otherwise."""
    if arch not in DEVICES:
        raise ValueError(f"no figures for the architecture {arch!r}: choose one of {', '.join(DEVICES)}")
    return DEVICES[arch]
