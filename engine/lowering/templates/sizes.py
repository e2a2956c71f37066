"""Finds the host text that computes a number from the sizes of the inputs.

A traced graph holds plain numbers. A number that differs between the large and the small form depends
on sizes; the simplest relation that holds in both forms is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations

from engine.lowering.templates.graph import Mismatch, Shape

_LARGEST_PART = 64
_FEW_PARTS = 8
_LARGEST_PLAIN = 4


class Sizes:
    """The sizes of the inputs of both forms, and what can be computed from them."""

    def __init__(
        self, large: Mapping[str, Shape], small: Mapping[str, Shape] | None, attributes: Mapping[str, float]
    ) -> None:
        self.known_small = small is not None
        self._dimensions: list[tuple[str, int, int]] = []
        for name, shape in large.items():
            other = shape if small is None else small[name]
            self._dimensions += [(f"{name}.shape[{axis}]", size, other[axis]) for axis, size in enumerate(shape)]
        self._attributes = attributes

    def whole(self, large: int, small: int, axis: int | None = None, literal: bool = False) -> str:
        """Text for a whole number, such as `x.shape[1] // 2`.

        `axis` is the dimension it is a size of, preferred among equals; `literal` says that a number
        which is the same in both forms is meant as it is. Where no small form is known, a half or a third
        of a size is taken to be meant as such.

        Raises:
            Mismatch: no relation is visible.
        """
        if literal and large == small and (self.known_small or large <= _LARGEST_PLAIN):
            return str(large)
        exact = [text for text, *sizes in self._dimensions if sizes == [large, small]]
        preferred = [text for text in exact if axis is not None and text.endswith(f"[{axis}]")]
        if preferred or exact:
            return (preferred or exact)[0]
        if large == small:
            return str(large) if self.known_small else self._share(large) or str(large)
        for text, candidate_large, candidate_small in self._derived():
            if (candidate_large, candidate_small) == (large, small):
                return text
        raise Mismatch(f"The size {large} ({small} in the small form) has no visible relation to the inputs' sizes.")

    def number(self, large: float, small: float) -> str:
        """Text for a number that is no size: an attribute, a literal (""), or a function of a size.

        Raises:
            Mismatch: it differs between the forms and no relation is visible.
        """
        if large == small:
            found = [text for text, value in self._attributes.items() if value == large]
            return found[0] if isinstance(large, float) and len(found) == 1 else ""
        for pattern, function in _FUNCTIONS:
            for text, size, other in self._dimensions:
                close = math.isclose(function(size), large, rel_tol=1e-9)
                if close and math.isclose(function(other), small, rel_tol=1e-9):
                    return pattern.format(text)
        if isinstance(large, int) and isinstance(small, int):
            return self.whole(large, small)
        raise Mismatch(f"The number {large:g} depends on sizes in a way that is not visible.")

    def _share(self, large: int) -> str:
        """Text for a number that divides a size into a few equal parts, or ""."""
        for part in range(2, _FEW_PARTS + 1):
            for text, size, _ in self._dimensions:
                if size == large * part:
                    return f"{text} // {part}"
        return ""

    def _derived(self) -> Iterator[tuple[str, int, int]]:
        for part in range(2, _LARGEST_PART + 1):
            for text, large, small in self._dimensions:
                yield f"{text} // {part}", large // part, small // part
                yield f"{text} - {text} // {part}", large - large // part, small - small // part
                yield f"{part} * {text}", part * large, part * small
                for times in range(2, part):
                    yield f"{times} * ({text} // {part})", times * (large // part), times * (small // part)
        for (text, large, small), (text_2, large_2, small_2) in combinations(self._dimensions, 2):
            yield f"{text} * {text_2}", large * large_2, small * small_2
        for first, second, third in combinations(self._dimensions, 3):
            sizes = (first[1] * second[1] * third[1], first[2] * second[2] * third[2])
            yield f"{first[0]} * {second[0]} * {third[0]}", *sizes
        for offset in range(1, _LARGEST_PART + 1):
            for text, large, small in self._dimensions:
                yield f"{text} - {offset}", large - offset, small - offset
                yield f"{text} + {offset}", large + offset, small + offset


_FUNCTIONS: tuple[tuple[str, Callable[[int], float]], ...] = (
    ("{} ** 0.5", math.sqrt),
    ("{} ** -0.5", lambda size: 1 / math.sqrt(size)),
    ("1.0 / {}", lambda size: 1 / size),
    ("float({})", float),
    ("{} ** 0.25", lambda size: size**0.25),
    ("{} ** -0.25", lambda size: size**-0.25),
)
