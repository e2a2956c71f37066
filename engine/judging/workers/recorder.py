"""Records what a candidate launches: exactly at the small form, by sampled programs at the large form.

Runs in the contestant, with TRITON_INTERPRET=1 set before Triton was imported. `install` once, before
forking; then `recording` around a call on real CPU tensors, or `sampling` around one on stand-ins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
import triton

from engine.judging.devices import device_for
from engine.judging.workers import interpreter_patches as patches
from engine.judging.workers import traffic
from engine.judging.workers.conditions import LaunchRefused
from engine.judging.workers.interpreter_builder import observing
from engine.judging.workers.specialise import launch_key
from engine.judging.workers.stand_ins import (
    StandIns,
    describe_inputs,
    extent_bytes,
    large_inputs,
    stand_in_module,
    without_memory,
)
from engine.judging.workers.torch_calls import LibraryCall, counting_calls

__all__ = [
    "Launch",
    "LaunchTraffic",
    "LibraryCall",
    "describe_inputs",
    "install",
    "large_inputs",
    "recording",
    "sampling",
    "stand_in_module",
    "without_memory",
]

WINDOW = 256
"""How many neighbouring programs are asked whether they share data; about what a device runs at a time."""

SAMPLING_ERROR = 0.03
"""By how much the counts of sampled programs may miss, where programs do unequal shares of the work."""

_PATIENCE = 20_000
"""Turns of `while` loops that a launch may take when the programs it waits for may come later."""

WINDOW_MINIMUM_BYTES = 8 << 20
"""Tensors below this stay in any second-level cache, so that sharing them needs no closer look."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch: which kernel, specialised how, with how many programs."""

    kernel: str
    qualname: str
    line: int
    grid: tuple[int, int, int]
    specialization: Mapping[str, Any]

    @property
    def key(self) -> str:
        """Launches with the same key share one binary."""
        return launch_key(self.qualname, self.specialization)

    def to_json(self) -> dict[str, Any]:
        """Plain values, as the compile nursery and the model read them."""
        return {
            "kind": "launch",
            "key": self.key,
            "kernel": self.kernel,
            "qualname": self.qualname,
            "line": self.line,
            "grid": list(self.grid),
            **self.specialization,
        }


@dataclass(frozen=True, slots=True)
class LaunchTraffic(Launch):
    """A launch of the large form with its counted traffic (see `traffic.summarise`)."""

    traffic: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """A launch with an entry `traffic`."""
        return {**Launch.to_json(self), "traffic": dict(self.traffic)}


class _Recorder:
    """Remembers every launch, and runs it in full unless it was told otherwise (see `recording`)."""

    def __init__(self, into: list[Launch], conduct: str) -> None:
        self._into = into
        self._conduct = conduct

    def launch(
        self, kernel: patches.Kernel, bound: Mapping[str, Any], specialization: dict[str, Any], grid: patches.Grid
    ) -> None:
        self._into.append(Launch(kernel.name, kernel.qualname, kernel.line, grid, specialization))
        if self._conduct == "fail":
            raise LaunchRefused
        if self._conduct == "reverse":
            with patches.impatient(_PATIENCE):
                kernel.perform(bound, grid, list(patches.all_programs(grid))[::-1], tracking=True)
        elif self._conduct != "skip":
            kernel.perform(bound, grid)


class _Sampler:
    """Runs a few programs of every launch and counts their traffic."""

    def __init__(self, into: list[Any], mode: StandIns, programs: int, corners: bool) -> None:
        self._into = into
        self._mode = mode
        self._programs = programs
        self._corners = corners

    def launch(
        self, kernel: patches.Kernel, bound: Mapping[str, Any], specialization: dict[str, Any], grid: patches.Grid
    ) -> None:
        regions: dict[int, traffic.Region] = {}
        with torch._C.DisableTorchFunction():
            arguments = kernel.arguments(bound, lambda tensor: self._address(tensor, regions))
        counter = traffic.Counter(list(regions.values()))
        samples = traffic.choose_programs(grid, self._programs)
        if self._corners:
            samples += traffic.corner_programs(grid)
        with patches.patched_language(), observing(counter):
            for index, sample in enumerate(samples):
                counter.start_program(sample.weight)
                kernel.run(arguments, grid, [sample.program])
                if index == 0 and counter.spent * len(samples) > 2 * traffic.OPERATION_BUDGET:
                    # A program this long is much like its neighbours; two more (masks included) must do.
                    counter.spent = 0
        window = self._window(kernel, arguments, grid, counter)
        total = grid[0] * grid[1] * grid[2]
        summary = traffic.summarise(counter, total, window)
        self._into.append(LaunchTraffic(kernel.name, kernel.qualname, kernel.line, grid, specialization, summary))

    def _address(self, value: Any, regions: dict[int, traffic.Region]) -> int:
        tensor = getattr(value, "base", value) if not isinstance(value, torch.Tensor) else value
        number, base, size = self._mode.memory.place(tensor)
        extent = extent_bytes(tensor)
        known = regions.get(number)
        if known is None or known.extent < extent:
            regions[number] = traffic.Region(number, base, size, extent)
        return self._mode.memory.address(tensor)

    def _window(
        self, kernel: patches.Kernel, arguments: Mapping[str, Any], grid: patches.Grid, counter: traffic.Counter
    ) -> dict[int, list[int]]:
        """Looks at neighbouring programs where large tensors are read by more than one of them."""
        shared = any(
            kind == "load" and flow.fresh * traffic.SECTOR > 1.5 * region.extent > WINDOW_MINIMUM_BYTES
            for region in counter.regions
            for (number, kind), flow in counter.flows.items()
            if number == region.number
        )
        if not shared:
            return {}
        footprints = traffic.Footprints(counter.regions)
        with patches.patched_language(), observing(footprints):
            for program in traffic.window_programs(grid, WINDOW):
                footprints.start_program()
                with suppress(traffic.EndOfProgram):
                    kernel.run(arguments, grid, [program])
                footprints.end_program()
                if footprints.spent > traffic.OPERATION_BUDGET // 2:
                    break
        return footprints.distinct()


def install(arch: str = "sm_90") -> None:
    """Patches Triton's interpreter to bind launches as for `arch`; call once, before forking.

    `emulation` and `libdevice` answer for the device and its library; install them as well.

    Raises:
        RuntimeError: where Triton was imported without TRITON_INTERPRET=1.
        ValueError: for an architecture without figures.
    """
    patches.install(device_for(arch).capability)


@contextmanager
def recording(conduct: str = "run") -> Iterator[list[Launch]]:
    """Launches are recorded in order.

    `conduct` says what else becomes of them: `run` in full, `reverse` the order of their programs,
    `skip` them, or let them `fail`.
    """
    launches: list[Launch] = []
    with patches.handling(_Recorder(launches, conduct)):
        yield launches


class Trace(list[Any]):
    """Launches and library calls in the order in which they were made.

    `notes` says what could not be followed; `written` tells how much of a tensor they wrote.
    """

    def __init__(self, mode: StandIns) -> None:
        super().__init__()
        self._mode = mode

    @property
    def outside(self) -> list[str]:
        """The kernels of which a looked at program leaves its tensors, if what it loads were zeros."""
        found = [entry.kernel for entry in self if isinstance(entry, LaunchTraffic) and entry.traffic["outside"]]
        return list(dict.fromkeys(found))

    @property
    def notes(self) -> list[str]:
        """What host code or kernels did that the counts do not show."""
        found = dict(self._mode.notes)
        for entry in self:
            if isinstance(entry, LaunchTraffic):
                found |= {f"{entry.kernel}: {note}": None for note in entry.traffic["notes"]}
        return list(found)

    def written(self, tensor: torch.Tensor) -> float:
        """The share of a tensor's storage that some recorded operation wrote, from 0 to 1.

        A launch with atomics may write once it knows that it is the last one, which no sampled program
        learns: with one such launch every share is the whole. Counts come from sampled programs: a share
        that misses the whole by their error is the whole.
        """
        with torch._C.DisableTorchFunction():
            number, _, size = self._mode.memory.place(tensor)
        if size == 0 or any(map(_uses_atomics, self)):
            return 1.0
        total = 0.0
        for entry in self:
            if isinstance(entry, LibraryCall):
                total += entry.writes.get(number, 0)
            else:
                for region in entry.traffic["regions"]:
                    if region["storage"] == number:
                        total += sum(flow["bytes"] for kind, flow in region["flows"].items() if kind != "load")
        return 1.0 if total > (1.0 - SAMPLING_ERROR) * size else total / size

    def to_json(self) -> list[dict[str, Any]]:
        """The entries as plain values."""
        return [entry.to_json() for entry in self]


def _uses_atomics(entry: Any) -> bool:
    regions = entry.traffic["regions"] if isinstance(entry, LaunchTraffic) else ()
    return any("atomic" in region["flows"] for region in regions)


@contextmanager
def sampling(programs: int = 8, corners: bool = False) -> Iterator[Trace]:
    """Host code runs on stand-ins; of each launch about `programs` programs are counted, not performed.

    With `corners` those at the ends of each axis are looked at as well, where kernels leave their tensors.
    """
    with without_memory() as mode:
        trace = Trace(mode)
        with counting_calls(mode, trace), patches.handling(_Sampler(trace, mode, programs, corners)):
            yield trace


def build_stand_in(build: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """Makes a module whose parameters have no memory, whatever their size."""
    with without_memory():
        return stand_in_module(build())


def interpreted() -> bool:
    """Whether kernels are interpreted in this process."""
    return bool(triton.knobs.runtime.interpret)
