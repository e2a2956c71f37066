"""The local steps from one set of parameters: pure, in the same order each time, without torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.lowering.structure import Parameters, Value


class Varied(Protocol):
    """What can be varied: a structure, or what the lowering process tells of one."""

    @property
    def choices(self) -> Mapping[str, Sequence[Value]]:
        """The values of each parameter, in order."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Parameters one local step away, and the step in one line (`num_warps 4 -> 8`)."""

    parameters: dict[str, Value]
    idea: str


def neighbours(structure: Varied, parameters: Parameters) -> list[Neighbour]:
    """All parameter sets one local step away, the smallest steps first.

    A step moves one parameter to an adjacent choice; moves a block and the number of warps of the same kernel together
    in one direction; or moves one parameter to any other choice. Parameters without choices stay.
    """
    found: dict[tuple[tuple[str, Value], ...], Neighbour] = {}
    for changes in (*_adjacent(structure, parameters), *_paired(structure, parameters), *_far(structure, parameters)):
        changed = {**parameters, **changes}
        key = tuple(sorted(changed.items()))
        if changed != dict(parameters) and key not in found:
            found[key] = Neighbour(changed, _idea(parameters, changes))
    return list(found.values())


def _adjacent(structure: Varied, parameters: Parameters) -> Iterator[dict[str, Value]]:
    for name in structure.choices:
        for direction in (1, -1):
            value = _moved(structure, parameters, name, direction)
            if value is not None:
                yield {name: value}


def _paired(structure: Varied, parameters: Parameters) -> Iterator[dict[str, Value]]:
    for warps in structure.choices:
        kernel, _, parameter = warps.rpartition(".")
        if parameter != "num_warps":
            continue
        for block in structure.choices:
            owner, _, label = block.rpartition(".")
            if owner != kernel or not label.isupper():
                continue
            for direction in (1, -1):
                larger = _moved(structure, parameters, block, direction)
                more = _moved(structure, parameters, warps, direction)
                if larger is not None and more is not None:
                    yield {block: larger, warps: more}


def _far(structure: Varied, parameters: Parameters) -> Iterator[dict[str, Value]]:
    for name, values in structure.choices.items():
        for value in values:
            yield {name: value}


def _moved(structure: Varied, parameters: Parameters, name: str, direction: int) -> Value | None:
    """The choice next to a parameter's value; None at the end, or if the value is none of the choices."""
    values = list(structure.choices[name])
    if name not in parameters or parameters[name] not in values:
        return None
    position = values.index(parameters[name]) + direction
    return values[position] if 0 <= position < len(values) else None


def _idea(parameters: Parameters, changes: Mapping[str, Value]) -> str:
    return ", ".join(f"{name} {parameters.get(name, 'unset')} -> {value}" for name, value in changes.items())
