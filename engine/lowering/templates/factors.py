"""Matrices that a kernel multiplies: where they live on the host and how they are addressed."""

from __future__ import annotations

from dataclasses import dataclass

from engine.lowering.templates.graph import Mismatch, Value
from engine.lowering.templates.operands import Operands, is_attribute

PRECISIONS = ("ieee", "tf32", "tf32x3")
"""How tl.dot may multiply float32 numbers on NVIDIA GPUs (Triton 3.6 to 3.9)."""


@dataclass(frozen=True, slots=True)
class Factor:
    """One matrix, or a batch of them. `transposed`: its last two axes are swapped in memory."""

    name: str
    host: str
    transposed: bool

    @property
    def pointer(self) -> str:
        """The kernel parameter that points to it."""
        return f"{self.name}_ptr"

    @property
    def height(self) -> str:
        """Host text of the number of its rows."""
        return f"{self.host}.shape[{-1 if self.transposed else -2}]"

    @property
    def width(self) -> str:
        """Host text of the number of its columns."""
        return f"{self.host}.shape[{-2 if self.transposed else -1}]"

    def place(self, row: str, column: str, height: str, width: str) -> str:
        """The offset of elements, given texts for rows, columns and the sizes of one matrix."""
        if self.transposed:
            return f"{column} * {height} + {row}"
        return f"{row} * {width} + {column}"


def factor(operands: Operands, value: Value, fallback: str) -> Factor:
    """Makes an input a factor, adding the host statements that it needs.

    Raises:
        Mismatch: the value is no input.
    """
    if value.op != "input":
        raise Mismatch("A factor of its matrix product is computed first.")
    text, layout = value.text("text"), value.text("layout")
    transposed = layout == "transposed"
    base = text.removesuffix(".mT") if transposed else text
    if layout in ("any", "rows"):
        base = f"{base}.contiguous()"
    name = value.label or fallback
    if base in operands.graph.arguments:
        _make_dense(operands, base)
        return Factor(base, base, transposed)
    if is_attribute(base):
        return Factor(operands.names.fresh(name), base, transposed)
    for argument in operands.graph.arguments:
        if base.startswith(f"{argument}."):
            _make_dense(operands, argument)
    host = operands.names.fresh(name)
    operands.host.append(f"{host} = {base}")
    return Factor(host, host, transposed)


def _make_dense(operands: Operands, argument: str) -> None:
    line = f"{argument} = {argument}.contiguous()"
    if line not in operands.host:
        operands.host.insert(0, line)
