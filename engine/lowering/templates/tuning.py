"""What is known of targets, and which parameters make sense on them."""

from __future__ import annotations

from dataclasses import dataclass

_PROCESSORS = {"sm_80": 108, "sm_86": 84, "sm_89": 142, "sm_90": 132, "sm_100": 148, "sm_103": 160, "sm_120": 170}
"""Streaming multiprocessors of the largest common product of each architecture (vendor's data sheets)."""
_SHARED = {"sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_90": 227, "sm_100": 227, "sm_103": 227, "sm_120": 99}
"""Shared memory a program can have, in KiB (CUDA programming guide, table of compute capabilities)."""
_MOST_PER_THREAD = 256


@dataclass(frozen=True, slots=True)
class Target:
    """The facts about an architecture that defaults depend on."""

    arch: str
    processors: int
    shared_bytes: int

    @classmethod
    def of(cls, arch: str) -> Target:
        """The target of that name (`sm_90`); an unknown one is taken to be like sm_90."""
        plain = arch.rstrip("af")
        return cls(arch, _PROCESSORS.get(plain, 132), _SHARED.get(plain, 227) * 1024)

    def program_counts(self) -> tuple[int, ...]:
        """How many programs a persistent kernel may start, from one to sixteen a multiprocessor."""
        return tuple(self.processors * times for times in (1, 2, 4, 8, 16))


def next_power_of_two(number: int) -> int:
    """The smallest power of two that is not below the number."""
    return 1 << max(number - 1, 0).bit_length()


def block_for(columns: int, largest: int) -> int:
    """The power of two that covers the columns, at most `largest`."""
    return min(next_power_of_two(columns), largest)


def warps_for(lanes: int, per_thread: int = 16, most: int = 16) -> int:
    """Warps with which each thread holds about `per_thread` of the lanes."""
    return max(1, min(most, next_power_of_two(lanes) // (32 * per_thread)))


def check_lanes(lanes: int, warps: int, values: int = 1) -> None:
    """Refuses tiles that leave threads idle or cannot be held in registers.

    Raises:
        ValueError: saying which.
    """
    threads = 32 * warps
    if lanes < threads:
        raise ValueError(f"A tile of {lanes} elements leaves some of {threads} threads idle; use fewer warps.")
    if lanes * values > _MOST_PER_THREAD * threads:
        raise ValueError(f"A tile of {lanes} elements does not fit the registers of {threads} threads; use more warps.")
