"""Which values an argument may take: how they are drawn at random, and how they may be varied.

A task declares domains in `DOMAINS`, by argument: `"any"`, `"positive"`, `"nonnegative"`, `"unit"` (from 0 to 1),
`("between", low, high)`, `("index", n)` (whole numbers from 0, below `n`), `"boolean"`, `"sorted"` or `("sorted", n)`
(ascending along the last dimension), `"probability"` (sums to one along it), `"fixed"` (not to be varied).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

_PLAIN = ("any", "positive", "nonnegative", "unit", "boolean", "sorted", "probability", "fixed")
_BOUNDED = {"between": 2, "index": 1, "sorted": 1}
_LEAST_POSITIVE = 0.1
_FACTORS = {"enlarged": 4.0, "diminished": 1 / 16}


class DomainError(ValueError):
    """A domain that does not exist, or values outside of theirs; the message is one sentence's end."""


@dataclass(frozen=True, slots=True)
class Domain:
    """One argument's domain; `bounds` are its numbers, as many as its kind takes."""

    kind: str = "any"
    bounds: tuple[float, ...] = ()

    @property
    def scales(self) -> bool:
        """Whether values may be multiplied by any positive number."""
        return self.kind in ("any", "positive", "nonnegative")

    def admits(self, change: str) -> bool:
        """Whether values that are `exchanged` (in place), `signed`, `enlarged` or `diminished` belong to it."""
        if change == "signed":
            return self.kind == "any"
        if change == "exchanged":
            return self.scales or self.kind in ("unit", "between")
        return self.kind not in ("fixed", "boolean", "index")

    def random(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Values drawn at random, for an argument of which only shape and dtype are known.

        Raises:
            DomainError: the dtype cannot hold them.
        """
        kind = self.kind
        if kind == "boolean" or dtype is torch.bool:
            return (torch.rand(shape) < 0.5).to(dtype)
        if not dtype.is_floating_point:
            return self._whole(shape, dtype)
        if kind == "index":
            raise DomainError(f"an index is a whole number, and {str(dtype).removeprefix('torch.')} is none")
        if kind == "positive":
            values = torch.rand(shape) * 1.9 + _LEAST_POSITIVE
        elif kind == "nonnegative":
            values = torch.rand(shape) * 2.0
        elif kind == "unit":
            values = torch.rand(shape)
        elif kind == "between":
            low, high = self.bounds
            values = torch.rand(shape) * (high - low) + low
        elif kind == "probability":
            values = torch.softmax(torch.randn(shape), -1)
        else:
            values = torch.randn(shape)
        return (values.sort(-1).values if kind == "sorted" and values.dim() else values).to(dtype)

    def _whole(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        low, high = 0, 100
        if self.kind == "between":
            low, high = int(self.bounds[0]), int(self.bounds[1]) + 1
        elif self.kind in ("index", "sorted") and self.bounds:
            high = int(self.bounds[0]) + (self.kind == "sorted")
        elif self.kind == "unit":
            high = 2
        elif self.kind == "positive":
            low = 1
        if high <= low:
            raise DomainError(f"no whole number is between {low} and {high - 1}")
        values = torch.randint(low, high, shape)
        return (values.sort(-1).values if self.kind == "sorted" and values.dim() else values).to(dtype)

    def varied(self, tensor: torch.Tensor, change: str) -> torch.Tensor:
        """Values of the same domain that are `signed`, `enlarged` or `diminished`; the same ones where it has none.

        Only floating values are varied.
        """
        if not tensor.is_floating_point() or not self.admits(change):
            return tensor
        if change == "signed":
            return tensor * (torch.randint(0, 2, tensor.shape, device=tensor.device) * 2 - 1).to(tensor.dtype)
        factor = _FACTORS[change]
        if self.kind in ("unit", "between"):
            low, high = self.bounds or (0.0, 1.0)
            middle = (low + high) / 2
            return ((tensor - middle) * factor + middle).clamp(low, high)
        if self.kind == "probability":
            return (tensor.double().clamp_min(1e-30).log() * factor).softmax(-1).to(tensor.dtype)
        return tensor * factor


ANY = Domain()


def read_domains(declared: object, names: list[str]) -> list[Domain]:
    """The domain of each argument, in order; `declared` is the task's DOMAINS, None where it has none.

    Raises:
        DomainError: there is no such argument, domain or bound.
    """
    if declared is None:
        return [ANY] * len(names)
    if not isinstance(declared, Mapping):
        raise DomainError("DOMAINS must be a dict from arguments to domains")
    if unknown := [name for name in declared if name not in names]:
        raise DomainError(f"DOMAINS names {unknown[0]}, which is no argument")
    return [_read(declared[name], name) if name in declared else ANY for name in names]


def _read(declared: object, name: str) -> Domain:
    kind, *bounds = declared if isinstance(declared, tuple | list) and declared else (declared,)
    known = isinstance(kind, str) and (len(bounds) == _BOUNDED.get(kind) if bounds else kind in _PLAIN)
    if not known or not all(isinstance(bound, int | float) for bound in bounds):
        raise DomainError(f"the domain {declared!r} of {name} does not exist")
    return Domain(str(kind), tuple(map(float, bounds)))
