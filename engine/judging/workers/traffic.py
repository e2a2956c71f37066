"""Counts what a kernel's sampled programs would move and compute, without moving or computing it.

Owns the counters and their extrapolation to the whole grid. It knows addresses and array shapes only;
where they come from (Triton's interpreter) is the business of `interpreter_patches`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

SECTOR = 32
"""Bytes that an NVIDIA memory system moves at least (CUDA C++ Best Practices Guide, coalesced access)."""

LOOP_HEAD, LOOP_BODY = 2, 12
"""How many iterations at a loop's start count once, and how many of its middle stand for all of the rest."""

OPERATION_BUDGET = 24_000
"""Interpreted operations a launch may cost (about 40 microseconds each) before its loops are sampled harder."""

Addresses = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Region:
    """The storage behind one tensor argument, and when each of its sectors was last touched.

    `touched` has one entry for each sector; its pages cost memory only where a sampled program went.
    """

    number: int
    base: int
    size: int
    extent: int
    touched: npt.NDArray[np.int64] | None = None

    def touch_times(self) -> npt.NDArray[np.int64]:
        """The clock of each sector's last touch, zero where there was none."""
        if self.touched is None:
            self.touched = np.zeros(self.size // SECTOR + 2, dtype=np.int64)
        return self.touched


@dataclass(slots=True)
class Flow:
    """Loads, stores or atomics of one region, summed over programs; counts of elements, bytes and sectors."""

    elements: float = 0.0
    bytes: float = 0.0
    sectors: float = 0.0
    fresh: float = 0.0
    reuse: dict[int, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain values; `reuse` maps the binary logarithm of a reuse distance in sectors to sectors."""
        return {
            "elements": _tidy(self.elements),
            "bytes": _tidy(self.bytes),
            "sectors": _tidy(self.sectors),
            "fresh": _tidy(self.fresh),
            "reuse": {str(key): _tidy(value) for key, value in sorted(self.reuse.items())},
        }


def _tidy(value: float) -> float:
    """Takes the rounding of weights out of a count."""
    return round(value, 3)


@dataclass(frozen=True, slots=True)
class Sample:
    """One program to run, as (x, y, z), and how many programs of the grid it stands for."""

    program: tuple[int, int, int]
    weight: float


class EndOfProgram(Exception):
    """Ends a program early when only its first accesses are wanted."""


class Counter:
    """Adds up the traffic and operations of the programs that are run while it is active."""

    def __init__(self, regions: Sequence[Region]) -> None:
        self.regions = sorted(regions, key=lambda region: region.base)
        self.bases = [region.base for region in self.regions]
        self.flows: dict[tuple[int, str], Flow] = {}
        self.operations: dict[str, float] = {}
        self.dots: dict[tuple[str, str, tuple[int, int, int]], float] = {}
        self.phases = 0.0
        self.notes: dict[str, None] = {}
        self.outside = False
        self.spent = 0
        self._clock = 1.0
        self._program_start = 1
        self._program_weight = 1.0
        self._loop_weight = 1.0
        self._iteration = 0
        self._counted_iteration = -1
        self._while_steps: dict[int, int] = {}

    # programs and loops

    def start_program(self, weight: float) -> None:
        """Counts what follows as one program that stands for `weight` programs of the grid."""
        self._program_start = int(self._clock) + 1
        self._clock = float(self._program_start)
        self._program_weight = weight
        self._loop_weight = 1.0
        self._iteration += 1
        self._while_steps.clear()

    def loop(self, steps: range, unrolled: bool) -> Iterator[int]:
        """Yields a loop's indices, a sample of them where there are many, and weighs the iterations.

        A few iterations at the start and the last one count once; evenly spread ones in the middle
        stand for the rest, so that what an iteration touches for the first time is extrapolated.
        """
        total = len(steps)
        body = LOOP_BODY if self.spent < OPERATION_BUDGET else 2
        outer = self._loop_weight
        try:
            for position, weight in _sampled_positions(total, body):
                if not unrolled:
                    self._iteration += 1
                self._loop_weight = outer * weight
                yield steps[position]
        finally:
            self._loop_weight = outer
            if not unrolled:
                self._iteration += 1

    def may_continue(self, line: int, limit: int = 2048) -> bool:
        """Whether a `while` loop may go round once more; values are not real, so its end may never come."""
        steps = self._while_steps.get(line, 0) + 1
        self._while_steps[line] = steps
        self._iteration += 1
        if steps <= limit:
            return True
        self.notes[f"the while loop at line {line} was cut after {limit} iterations"] = None
        return False

    def barrier(self) -> None:
        """Separates loads that cannot be in flight together (a reduction needs all threads)."""
        self._iteration += 1

    # operations

    def count(self, kind: str, elements: float) -> None:
        """Adds operations on `elements` values; single values are uniform in a program and cost nothing here."""
        self.spent += 1
        if elements > 1:
            weight = self._program_weight * self._loop_weight
            self.operations[kind] = self.operations.get(kind, 0.0) + elements * weight

    def dot(self, dtype: str, precision: str, shape: tuple[int, int, int]) -> None:
        """Adds one matrix product of (m, n, k)."""
        self.spent += 1
        key = (dtype, precision, shape)
        self.dots[key] = self.dots.get(key, 0.0) + self._program_weight * self._loop_weight

    # memory

    def region_at(self, address: int) -> Region | None:
        """The region that holds an address, with some slack behind it, or None."""
        index = bisect_right(self.bases, address) - 1
        return self.regions[index] if index >= 0 else None

    def access(self, kind: str, addresses: Addresses, mask: Flags | None, itemsize: int) -> None:
        """Counts one access of all lanes: `kind` is load, store or atomic; addresses and sizes in bytes."""
        self.spent += 1
        active = addresses.reshape(-1) if mask is None else addresses[np.broadcast_to(mask, addresses.shape)]
        if active.size == 0:
            return
        region = self.region_at(int(active[0]))
        if region is None:
            self.notes[f"a {kind} at an address outside every tensor"] = None
            self.outside = True
            return
        offsets = active.astype(np.int64) - region.base
        inside = (offsets >= 0) & (offsets < region.size)
        if not inside.all():
            self.notes[f"a {kind} outside its tensor"] = None
            self.outside = True
            offsets = offsets[inside]
            if offsets.size == 0:
                return
        self._add(kind, region, offsets, itemsize)

    def _add(self, kind: str, region: Region, offsets: npt.NDArray[np.int64], itemsize: int) -> None:
        weight = self._program_weight * self._loop_weight
        elements = int(offsets.size)
        if kind == "load" and self._iteration != self._counted_iteration:
            self._counted_iteration = self._iteration
            self.phases += weight
        sectors, previous = _touch(region, offsets >> 5, int(self._clock))
        flow = self.flows.setdefault((region.number, kind), Flow())
        flow.elements += elements * weight
        flow.bytes += elements * itemsize * weight
        flow.sectors += sectors * weight
        seen = previous[previous >= self._program_start]
        flow.fresh += (sectors - seen.size) * weight
        if seen.size:
            distances = np.maximum(self._clock - seen, 1.0)
            keys, counts = np.unique(np.log2(distances).astype(np.int64), return_counts=True)
            for key, number in zip(keys.tolist(), counts.tolist(), strict=True):
                flow.reuse[key] = flow.reuse.get(key, 0.0) + number * weight
        self._clock += max(1.0, sectors * self._loop_weight)


def _touch(region: Region, sectors: npt.NDArray[np.int64], now: int) -> tuple[int, npt.NDArray[np.int64]]:
    """Marks sectors as touched now; gives how many distinct ones there are and when each was touched before."""
    if sectors.size > 1:
        keep = np.empty(sectors.size, dtype=bool)
        keep[0] = True
        np.not_equal(sectors[1:], sectors[:-1], out=keep[1:])
        sectors = sectors[keep]
    times = region.touch_times()
    previous = times[sectors]
    # The last lane that writes its number wins, which leaves one lane for each distinct sector, without sorting.
    lanes = np.arange(1, sectors.size + 1, dtype=np.int64)
    times[sectors] = -lanes
    winners = times[sectors] == -lanes
    times[sectors] = now
    return int(winners.sum()), previous[winners]


def _sampled_positions(total: int, body: int) -> Iterator[tuple[int, float]]:
    """Positions of a loop of `total` iterations to run, each with the number of iterations it stands for."""
    if total <= LOOP_HEAD + body + 1:
        for position in range(total):
            yield position, 1.0
        return
    for position in range(LOOP_HEAD):
        yield position, 1.0
    middle = total - LOOP_HEAD - 1
    for position in range(LOOP_HEAD, LOOP_HEAD + body):
        yield position, middle / body
    yield total - 1, 1.0


def choose_programs(grid: tuple[int, int, int], programs: int) -> list[Sample]:
    """Chooses programs that together stand for the whole grid.

    The grid falls into classes by whether a program is the last along each axis, since masks bite there;
    every class gets at least one program, and evenly spread ones share what is left. Weights of a class
    add up to its size. A grid of no more than `programs` programs is taken whole.
    """
    total = grid[0] * grid[1] * grid[2]
    if total <= programs:
        return [Sample(_unravel(index, grid), 1.0) for index in range(total)]
    classes: list[tuple[int, list[range]]] = []
    for last in range(8):
        ranges = []
        for axis in range(3):
            size = grid[axis]
            is_last = bool(last >> axis & 1)
            ranges.append(range(size - 1, size) if is_last else range(0, size - 1 if size > 1 else 0))
        count = len(ranges[0]) * len(ranges[1]) * len(ranges[2])
        if count:
            classes.append((count, ranges))
    classes.sort(key=lambda item: -item[0])
    spare = max(1, programs - (len(classes) - 1))
    samples = []
    for index, (count, ranges) in enumerate(classes):
        wanted = min(count, spare if index == 0 else 1)
        shape = (len(ranges[0]), len(ranges[1]), len(ranges[2]))
        for number in range(wanted):
            place = _unravel(int((number + 0.5) * count / wanted), shape)
            samples.append(Sample((ranges[0][place[0]], ranges[1][place[1]], ranges[2][place[2]]), count / wanted))
    return samples


_CORNER = 0.01
"""What a program counts for that is only looked at."""


def corner_programs(grid: tuple[int, int, int]) -> list[Sample]:
    """The programs at both ends of every axis; they stand for next to none, so that counts hardly change."""
    ends = [sorted({0, size - 1}) for size in grid]
    return [Sample((x, y, z), _CORNER) for x in ends[0] for y in ends[1] for z in ends[2]]


def _unravel(index: int, grid: tuple[int, int, int]) -> tuple[int, int, int]:
    """The program of a linear index; x runs fastest, as the hardware starts programs."""
    return index % grid[0], index // grid[0] % grid[1], index // (grid[0] * grid[1])


def window_programs(grid: tuple[int, int, int], count: int) -> list[tuple[int, int, int]]:
    """Programs that start one after the other, from the middle of the grid."""
    total = grid[0] * grid[1] * grid[2]
    first = max(0, min(total // 2, total - count))
    return [_unravel(index, grid) for index in range(first, min(first + count, total))]


class Footprints:
    """Where neighbouring programs start to read: tells how many of them share their data.

    It stands in for a Counter while programs run only up to their first repeated load.
    """

    def __init__(self, regions: Sequence[Region]) -> None:
        self._places = Counter(regions)
        self.seen: dict[int, list[int]] = {}
        self.spent = 0
        self._first: dict[int, int] = {}

    def start_program(self) -> None:
        """Begins the next program of the window."""
        self._first = {}

    def end_program(self) -> None:
        """Keeps where the program started to read in each region."""
        for number, start in self._first.items():
            self.seen.setdefault(number, []).append(start)

    def access(self, kind: str, addresses: Addresses, mask: Flags | None, itemsize: int) -> None:
        """Notes the first address of a program's first load in each region."""
        self.spent += 1
        if kind != "load" or addresses.size == 0:
            return
        start = int(addresses.reshape(-1)[0])
        region = self._places.region_at(start)
        if region is not None and region.number not in self._first:
            self._first[region.number] = start

    def loop(self, steps: range, unrolled: bool) -> Iterator[int]:
        """Runs only the first iteration of a loop."""
        yield from steps[:1]

    def may_continue(self, line: int, limit: int = 1) -> bool:
        """A `while` loop is left before it starts a second time."""
        raise EndOfProgram

    def barrier(self) -> None:
        """Nothing to separate here."""

    def count(self, kind: str, elements: float) -> None:
        """Operations are counted elsewhere."""
        self.spent += 1

    def dot(self, dtype: str, precision: str, shape: tuple[int, int, int]) -> None:
        """After the first product everything of interest has been read."""
        raise EndOfProgram

    def distinct(self) -> dict[int, list[int]]:
        """For each region, how many different starts the first 1, 2, 4, ... programs have."""
        result = {}
        for number, starts in self.seen.items():
            counts, size = [], 1
            while size <= len(starts):
                counts.append(len(set(starts[:size])))
                size *= 2
            result[number] = counts
        return result


def summarise(counter: Counter, programs: int, window: Mapping[int, Sequence[int]]) -> dict[str, Any]:
    """The counts of a launch as plain values, extrapolated to all its programs.

    `regions` lists each tensor's `size` and `extent` (bytes that its view spans), its flows by kind and
    `window`, the distinct footprints of 1, 2, 4, ... neighbouring programs (empty: not looked at).
    """
    regions = []
    for region in sorted(counter.regions, key=lambda item: item.number):
        flows = {
            kind: flow.to_json() for (number, kind), flow in sorted(counter.flows.items()) if number == region.number
        }
        if flows:
            regions.append(
                {
                    "storage": region.number,
                    "size": region.size,
                    "extent": region.extent,
                    "flows": flows,
                    "window": list(window.get(region.number, ())),
                }
            )
    return {
        "programs": programs,
        "regions": regions,
        "operations": {kind: _tidy(number) for kind, number in sorted(counter.operations.items())},
        "dots": [
            {"dtype": dtype, "precision": precision, "shape": list(shape), "count": _tidy(number)}
            for (dtype, precision, shape), number in sorted(counter.dots.items())
        ],
        "phases": _tidy(counter.phases),
        "notes": list(counter.notes),
        "outside": counter.outside,
    }
