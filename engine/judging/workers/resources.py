"""What compiled code says about itself: registers, spills and instructions, from a cubin and its PTX."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import triton

_USAGE = re.compile(r"Function (\S+):\s*\n\s*REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
_ACCESS = re.compile(r"\b(ld|st)\.global((?:\.[A-Za-z0-9_:]+)*)")
_COPY = re.compile(r"\bcp\.async\.c[ag]\.shared\.global[^;]*?\],\s*\[[^\]]*\],\s*(0x[0-9a-fA-F]+|\d+)")
_WGMMA = re.compile(r"\bwgmma\.mma_async\.sync\.aligned\.m\d+n(\d+)k\d+\.\w+\.(\w+)")
_MMA = re.compile(r"\bmma\.sync\.aligned\.m\d+n\d+k\d+\.(?:row|col)\.(?:row|col)\.\w+\.(\w+)")
_TCGEN = re.compile(r"\btcgen05\.mma\.cta_group::\d\.kind::(\w+)")

_MIX = {
    "special": re.compile(r"\b(?:ex2|lg2|rcp|rsqrt|sqrt|sin|cos|tanh)\.(?:approx|rn)|\bdiv\.(?:full|rn|approx)"),
    "fp32": re.compile(r"\b(?:fma|add|sub|mul|max|min)(?:\.rn)?(?:\.ftz)?\.f32"),
    "fp64": re.compile(r"\b(?:fma|add|sub|mul)(?:\.rn)?\.f64"),
    "barriers": re.compile(r"\b(?:bar|barrier)(?:\.cta)?\.sync"),
    "shuffles": re.compile(r"\b(?:shfl|redux)\.sync"),
    "shared_loads": re.compile(r"\b(?:ld\.shared|ldmatrix)"),
    "shared_stores": re.compile(r"\b(?:st\.shared|stmatrix)"),
    "local": re.compile(r"\b(?:ld|st)\.local"),
    "atomics": re.compile(r"\b(?:atom|red)\.(?:global|gpu|relaxed|acq)"),
    "conversions": re.compile(r"\bcvt\."),
}


class ResourceError(RuntimeError):
    """The tool that reads compiled code is missing or does not understand it."""


@cache
def cuobjdump() -> str:
    """The path of NVIDIA's cuobjdump: Triton's own, or one on the PATH; ResourceError where there is none."""
    try:
        configured = triton.knobs.nvidia.cuobjdump.path
    except (AttributeError, RuntimeError):
        configured = str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump")
    found = configured if Path(configured).is_file() else shutil.which("cuobjdump")
    if found is None:
        raise ResourceError("cuobjdump was found neither in Triton's folder nor on the PATH: install Triton again")
    return found


def resource_usage(cubin: bytes) -> dict[str, int]:
    """Registers and stack bytes a thread, static shared bytes a program, of a cubin with one kernel.

    Triton leaves registers and spills unset for code that no driver has loaded; what does not fit in
    registers shows as stack, four bytes a spilled value.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run(
            [cuobjdump(), "--dump-resource-usage", file.name], capture_output=True, text=True, check=False, timeout=60
        )
    match = _USAGE.search(done.stdout)
    if match is None:
        raise ResourceError(f"cuobjdump gave no resource usage: {(done.stderr or done.stdout).strip()[:200]}")
    registers, stack, shared, local = map(int, match.groups()[1:])
    return {"registers": registers, "stack_bytes": max(stack, local), "static_shared_bytes": shared}


def _access_bytes(modifiers: str) -> int:
    """Bytes that one thread moves with an instruction `ld.global<modifiers>`."""
    vector = re.search(r"\.v(\d)\b", modifiers)
    width = re.search(r"\.[bfsu](\d+)$", modifiers)
    return (int(vector.group(1)) if vector else 1) * (int(width.group(1)) if width else 32) // 8


def inspect_ptx(ptx: str) -> dict[str, Any]:
    """Counts instructions: global accesses by bytes a thread, asynchronous copies, matrix units, the rest.

    `dot` is None, or the matrix unit used (`wgmma`, `tcgen05`, `mma`) with its operand `type`.
    """
    loads: dict[str, int] = {}
    stores: dict[str, int] = {}
    for kind, modifiers in _ACCESS.findall(ptx):
        counts = loads if kind == "ld" else stores
        size = str(_access_bytes(modifiers))
        counts[size] = counts.get(size, 0) + 1
    copies: dict[str, int] = {}
    for size in _COPY.findall(ptx):
        key = str(int(size, 0))
        copies[key] = copies.get(key, 0) + 1
    return {
        "load_bytes": dict(sorted(loads.items())),
        "store_bytes": dict(sorted(stores.items())),
        "copy_bytes": dict(sorted(copies.items())),
        "bulk_copies": len(re.findall(r"\bcp\.async\.bulk", ptx)),
        "dot": _matrix_unit(ptx),
        "mix": {name: len(pattern.findall(ptx)) for name, pattern in _MIX.items()},
    }


def _matrix_unit(ptx: str) -> dict[str, Any] | None:
    for unit, pattern, group in (("wgmma", _WGMMA, 2), ("tcgen05", _TCGEN, 1), ("mma", _MMA, 1)):
        match = pattern.search(ptx)
        if match:
            operand = {"f16": "fp16", "e4m3": "fp8", "e5m2": "fp8", "s8": "int8", "u8": "int8", "f64": "fp64"}
            name = match.group(group)
            return {"unit": unit, "type": operand.get(name, name)}
    return None


_NOISE = re.compile(r"^\s*(?://.*|\.loc\b.*|\.file\b.*)$\n?", re.MULTILINE)
_DEBUG = re.compile(r"^\s*\.section\s+\.debug.*?^\s*\}", re.MULTILINE | re.DOTALL)


def code_fingerprint(ptx: str, name: str, options: Mapping[str, Any]) -> str:
    """A hash of the instructions alone: names, comments and source lines do not enter it."""
    text = _DEBUG.sub("", ptx)
    text = _NOISE.sub("", text)
    text = re.sub(r"\s*//.*", "", text).replace(name, "kernel")
    return hashlib.sha256(f"{text}{sorted(options.items())}".encode()).hexdigest()
