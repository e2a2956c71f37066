"""Where a launch's bytes come from: first-level cache, second-level cache or device memory.

Part of the time model; standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.judging.devices import Device

SECTOR = 32
"""Bytes of the smallest unit that memory moves."""

USABLE_L2 = 0.6
"""Share of the second-level cache in which data survives until it is wanted again (it is hashed over two halves)."""

SAME_ADDRESS_NS = 1.0
"""Nanoseconds between two atomic operations on one address."""

ATOMICS_PER_SECOND = 1.6e11
"""Atomic operations on different addresses that the second-level cache performs."""


@dataclass(slots=True)
class LaunchBytes:
    """Bytes of one launch: through L1 and L2, read for the first time and written by storage, and re-read from DRAM."""

    l1: float = 0.0
    l2: float = 0.0
    repeated_dram: float = 0.0
    atomic_seconds: float = 0.0
    first_reads: dict[str, float] = field(default_factory=dict)
    writes: dict[str, float] = field(default_factory=dict)


class RecentlyUsed:
    """Which storages the second-level cache still holds from earlier launches; empty at first (a cold cache)."""

    def __init__(self, l2_bytes: int) -> None:
        self._capacity = USABLE_L2 * l2_bytes
        self._held: dict[str, float] = {}

    def use(self, reads: Mapping[str, float], writes: Mapping[str, float]) -> float:
        """Bytes of device memory that a launch moves which reads and writes these storages.

        Writes always reach memory in the end; reads of what was touched just before are free.
        """
        moved = math.fsum(writes.values())
        for storage, size in reads.items():
            moved += max(0.0, size - self._held.get(storage, 0.0))
        for storage, size in (*reads.items(), *writes.items()):
            self._held.pop(storage, None)
            if size <= self._capacity:
                self._held[storage] = size
            else:
                self._held.clear()
        while math.fsum(self._held.values()) > self._capacity:
            self._held.pop(next(iter(self._held)))
        return moved


def count_bytes(
    traffic: Mapping[str, Any], kernel: Mapping[str, Any], device: Device, on_one: int, at_once: int
) -> LaunchBytes:
    """Sorts a launch's traffic into levels.

    Args:
        traffic: the counts of `recorder.sampling`.
        kernel: the compiled kernel.
        device: the device.
        on_one: programs that one multiprocessor works on at a time.
        at_once: programs that the device works on at a time.
    """
    result = LaunchBytes()
    programs = int(traffic["programs"])
    working_set = math.fsum(_unique(region) for region in traffic["regions"])
    l1_room = max(8 << 10, device.l1_bytes - on_one * (int(kernel["shared_bytes"]) + 1024))
    l2_room = USABLE_L2 * device.l2_bytes
    waves = programs / at_once
    each = math.fsum(float(flow["fresh"]) for region in traffic["regions"] for flow in region["flows"].values())
    each *= SECTOR / programs
    footprints = {index: _wave_bytes(region, programs, at_once) for index, region in enumerate(traffic["regions"])}
    wave_miss = _miss(math.fsum(footprints.values()), l2_room) if working_set > l2_room else 0.0
    for index, region in enumerate(traffic["regions"]):
        storage = str(region["storage"])
        for kind, flow in region["flows"].items():
            touched = float(flow["sectors"]) * SECTOR
            # Every sector takes a quarter of a pass through the cache, and half of one where lanes lie far apart.
            scattered = touched * (2.0 if touched > 4.0 * float(flow["bytes"]) else 1.0)
            result.l1 += max(float(flow["bytes"]), scattered)
            fresh = float(flow["fresh"]) * SECTOR
            sharing = max(1.0, fresh / max(1.0, min(fresh, _spanned(region))))
            below_l1 = fresh
            if kind == "load":
                # What every program reads, such as a bias, waits in the cache for the next one on the same
                # multiprocessor, unless what a program reads besides pushes it out.
                here = max(1.0, sharing / device.multiprocessors)
                below_l1 *= 1.0 - (1.0 - 1.0 / here) * (1.0 - _miss(each, l1_room))
            for key, sectors in flow["reuse"].items():
                # Distances count what was touched, also again; a program holds no more than what is distinct.
                distance = min(1.5 * 2.0 ** int(key) * SECTOR, each)
                size = float(sectors) * SECTOR
                near = distance * on_one / min(sharing, float(on_one))
                missed = size if kind != "load" else size * _miss(near, l1_room)
                below_l1 += missed
                # The other programs that read the same keep it fresh.
                spread = min(distance * at_once / min(sharing, float(at_once)), working_set)
                result.repeated_dram += missed * _miss(spread, l2_room)
            result.l2 += below_l1
            if kind == "load":
                unique = min(fresh, _spanned(region))
                result.first_reads[storage] = result.first_reads.get(storage, 0.0) + unique
                streamed = min(fresh, waves * footprints[index])
                result.repeated_dram += max(0.0, streamed - unique) * wave_miss
            else:
                result.writes[storage] = result.writes.get(storage, 0.0) + min(fresh, _spanned(region))
            if kind == "atomic":
                result.atomic_seconds += _atomic_seconds(region, flow)
    spilled = float(kernel["spills"]) * 4 * 32 * int(kernel["num_warps"]) * 2
    result.l1 += spilled * max(float(programs), float(traffic["phases"]))
    result.l2 += 0.5 * spilled * programs
    return result


def _spanned(region: Mapping[str, Any]) -> float:
    """Bytes of the sectors that a region's view spans."""
    return float(-(-int(region["extent"]) // SECTOR) * SECTOR)


def _unique(region: Mapping[str, Any]) -> float:
    """Bytes of a region that a launch touches at least once."""
    fresh = math.fsum(float(flow["fresh"]) for flow in region["flows"].values()) * SECTOR
    return min(fresh, _spanned(region))


def _miss(needed: float, room: float) -> float:
    """Share of re-reads that miss a cache: none while half of the room is enough, all when twice is not."""
    if needed <= 0.5 * room:
        return 0.0
    return min(1.0, (needed - 0.5 * room) / (1.5 * room))


def _wave_bytes(region: Mapping[str, Any], programs: int, at_once: int) -> float:
    """Distinct bytes of a region that the programs running at a time read."""
    load = region["flows"].get("load")
    if load is None:
        return 0.0
    window: Sequence[int] = region["window"]
    if not window:
        return _unique(region) * min(1.0, at_once / programs)
    position = math.log2(max(1, at_once))
    last = len(window) - 1
    if position >= last:
        # Beyond the window the count goes on as it did over its second half.
        growth = window[-1] / window[-2] if last >= 1 else 1.0
        distinct = float(window[-1] * growth ** (position - last))
    else:
        below = int(position)
        distinct = window[below] + (window[below + 1] - window[below]) * (position - below)
    each = float(load["fresh"]) * SECTOR / programs
    return float(min(_spanned(region), distinct * each))


def _atomic_seconds(region: Mapping[str, Any], flow: Mapping[str, Any]) -> float:
    """Seconds of atomic operations: those on one address follow each other."""
    elements = float(flow["elements"])
    item = max(1.0, float(flow["bytes"]) / elements)
    addresses = max(1.0, min(elements, float(region["extent"]) / item))
    return max(elements / ATOMICS_PER_SECOND, elements / addresses * SAME_ADDRESS_NS * 1e-9)
