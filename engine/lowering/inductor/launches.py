"""Collects the launches of a call and rewrites each kernel once, for all the places that launch it."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.lowering.inductor.kernels import PlainKernel, rewrite_kernel
from engine.lowering.inductor.labels import kernel_name, unique
from engine.lowering.inductor.syntax import expression
from engine.lowering.inductor.tensors import Sizes
from engine.lowering.inductor.wrapper import NotReadable, WrittenKernel

GRID_LIMIT = 65535
"""Most programs that CUDA starts along the second and third axis of a grid."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch: the kernel's readable name, its tensors and sizes in order, and the extent of each axis.

    `many_rows` says that programs along the second axis continue along the third, since a grid has a limit there.
    """

    kernel: str
    arguments: tuple[str, ...]
    extents: Mapping[str, str]
    many_rows: bool


@dataclass(frozen=True, slots=True)
class PendingLaunch:
    """A launch of a kernel that is not rewritten yet; `texts` are its arguments."""

    kernel: str
    texts: tuple[str, ...]


class Launches:
    """The launches of one call."""

    def __init__(self, kernels: Mapping[str, WrittenKernel], sizes: Sizes) -> None:
        self.written = kernels
        self.sizes = sizes
        self.pending: list[PendingLaunch] = []
        self.kernels: dict[str, PlainKernel] = {}
        self.written_as: dict[str, WrittenKernel] = {}
        self._readable: dict[str, str] = {}
        self._order: dict[str, list[str]] = {}
        self._many_rows: set[str] = set()

    def parameters(self, kernel: str) -> list[str]:
        """Names of a kernel's parameters, blocks left out.

        Raises:
            NotReadable: there is no such kernel.
        """
        if kernel not in self.written:
            raise NotReadable(f"The lowered call launches {kernel}, whose text is not there.")
        return [p.arg for p in self.written[kernel].function.args.args if not p.arg.endswith("BLOCK")]

    def add(self, kernel: str, texts: Sequence[str]) -> PendingLaunch:
        """Notes a launch."""
        self.pending.append(PendingLaunch(kernel, tuple(texts)))
        return self.pending[-1]

    def rewrite(self) -> None:
        """Rewrites every kernel that is launched."""
        for name, kernel in self.written.items():
            calls = [launch.texts for launch in self.pending if launch.kernel == name]
            if calls:
                self._rewrite(name, kernel, calls)

    def finished(self, launch: PendingLaunch) -> Launch:
        """A launch with the rewritten kernel's name and order of arguments."""
        given = dict(zip(self.parameters(launch.kernel), launch.texts, strict=False))
        extents = {axis: given.get(f"{axis}numel", "1") for axis in ("x", "y", "z", "r0_", "r1_")}
        arguments = tuple(given[parameter] for parameter in self._order[launch.kernel])
        return Launch(self._readable[launch.kernel], arguments, extents, launch.kernel in self._many_rows)

    def _rewrite(self, name: str, kernel: WrittenKernel, calls: list[tuple[str, ...]]) -> None:
        parameters = self.parameters(name)
        readable = kernel_name(kernel, set(self.kernels))
        pointers, sizes = _parameter_names(parameters, calls, kernel)
        if "ynumel" in parameters:
            extents = [call[parameters.index("ynumel")] for call in calls]
            if any(self.sizes.largest(extent) > GRID_LIMIT for extent in extents):
                self._many_rows.add(name)
        plain = rewrite_kernel(kernel, readable, pointers, sizes, name in self._many_rows)
        order: dict[str | int, str] = {}
        for parameter in parameters:
            order.setdefault(f"{pointers[parameter]}_ptr" if parameter in pointers else sizes[parameter], parameter)
        self.kernels[readable], self.written_as[readable], self._readable[name] = plain, kernel, readable
        self._order[name] = [order[label] for label in plain.parameters if not label.startswith("BLOCK")]


def _parameter_names(
    parameters: Sequence[str], calls: list[tuple[str, ...]], kernel: WrittenKernel
) -> tuple[dict[str, str], dict[str, str | int]]:
    """Readable names of pointers and of sizes; a size that is one number everywhere is that number."""
    pointers: dict[str, str] = {}
    sizes: dict[str, str | int] = {}
    used: dict[str, str] = {}
    for position, parameter in enumerate(parameters):
        texts = [call[position] for call in calls]
        if "ptr" in parameter:
            path = re.fullmatch(r"(?:[\w.]*\.)?(\w+)", texts[0])
            key = f"pointer {texts[0]}" if len(calls) == 1 else parameter
            pointers[parameter] = unique(path.group(1) if path else "value", used, key)
        elif len(set(texts)) == 1 and texts[0].isdigit():
            sizes[parameter] = int(texts[0])
        else:
            single = len(set(texts)) == 1 and isinstance(expression(texts[0]), ast.Name)
            wish = texts[0] if single else _role(parameter, kernel)
            sizes[parameter] = unique(wish, used, f"size {'|'.join(texts)}")
    return pointers, sizes


def _role(parameter: str, kernel: WrittenKernel) -> str:
    if parameter == "xnumel":
        return "elements" if kernel.heuristic == "pointwise" else "row_count"
    return "row_length" if parameter.startswith("r") else "extent"
