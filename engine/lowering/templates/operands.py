"""Addresses the inputs and outputs of a graph from inside a kernel over rows and columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from engine.lowering.templates.domain import Domain, RowIndex, Span
from engine.lowering.templates.graph import HALVES, Graph, Mismatch, Output, Unrelated, Value
from engine.lowering.templates.names import HOST_NAMES, Names
from engine.lowering.templates.pointwise import POINTWISE, literal

_WIDENED = ".to(tl.float32)"


@dataclass(frozen=True, slots=True)
class Index:
    """The texts with which a kernel names places; an empty mask means that none is needed."""

    row: str = "row"
    column: str = "column"
    flat: str = ""
    both_mask: str = "inside"
    row_mask: str = ""
    column_mask: str = "inside"

    def mask(self, span: Span) -> str:
        """The mask for a tensor of that span."""
        if span.rows and span.columns:
            return self.both_mask
        return self.row_mask if span.rows else self.column_mask if span.columns else ""


@dataclass(frozen=True, slots=True)
class Operand:
    """One input: its name in kernels, its text on the host, and how it is addressed."""

    value: Value
    name: str
    host: str
    span: Span
    row_index: RowIndex | None
    apart: bool

    @property
    def pointer(self) -> str:
        """The kernel parameter that points to it."""
        return f"{self.name}_ptr"


@dataclass(slots=True)
class Operands:
    """All inputs, constants and outputs of a graph over a domain."""

    graph: Graph
    domain: Domain
    names: Names = field(default_factory=Names)
    inputs: dict[Value, Operand] = field(default_factory=dict)
    constants: dict[Value, tuple[str, str]] = field(default_factory=dict)
    host: list[str] = field(default_factory=list)
    output_names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names = Names([*self.graph.arguments, *HOST_NAMES])
        values = self.graph.values()
        texts = [value.text("text") for value in values if value.op == "input"]
        for name in self.graph.arguments:
            if any(text == name or text.startswith(f"{name}.") for text in texts):
                self.host.append(f"{name} = {name}.contiguous()")
        for value in values:
            if value.op == "input":
                self.inputs[value] = self._operand(value)
            elif value.op == "constant" and value.text("text"):
                text = value.text("text")
                wanted = text.rsplit(".", 1)[-1] if text.startswith("self.") else value.label or "factor"
                self.constants[value] = (self.names.fresh({"eps": "epsilon"}.get(wanted, wanted)), text)
        for output in self.graph.outputs:
            self.output_names.append(self.names.fresh(output.name))

    def _operand(self, value: Value) -> Operand:
        text = value.text("text")
        span, row_index = self.domain.span(value), None
        if span.rows:
            row_index = self.domain.row_index(value)
        if text in self.graph.arguments:
            host = name = text
        else:
            name = self.names.fresh(value.label or "operand")
            host = text
        layout = value.text("layout")
        if text not in self.graph.arguments and not is_attribute(text):
            host = name
            self.host.append(f"{name} = {text}" + (".contiguous()" if layout in ("any", "transposed") else ""))
        apart = layout == "rows" and span.rows and span.columns
        if layout == "rows" and not apart:
            self.host[-1] += ".contiguous()"
        return Operand(value, name, host, span, row_index, apart)

    def kernel_names(self) -> Names:
        """Names inside a kernel: those of its parameters are taken."""
        taken = ["rows", "columns", "count", "row", "column", "inside", "start", "lane", "block", "step", "place"]
        return Names([*taken, *self.numbers(self.graph.values())])

    def size(self, axis: int) -> str:
        """Host text of the size of an axis of the domain."""
        value, place = self.domain.sizes[axis]
        return f"{self.inputs[value].host}.shape[{place}]"

    def count_lines(self, rows_too: bool = True) -> list[str]:
        """Host statements that define `columns` and, if wanted, `rows`."""
        cut = len(self.domain.shape) - self.domain.trailing
        full = [
            operand
            for operand in self.inputs.values()
            if operand.value.shape == self.domain.shape and len(operand.value.shape) == 2 and cut == 1
        ]
        if full and rows_too:
            return [f"rows, columns = {full[0].host}.shape"]
        rows = " * ".join(self.size(axis) for axis in range(cut)) or "1"
        columns = " * ".join(self.size(axis) for axis in range(cut, len(self.domain.shape))) or "1"
        return [*([f"rows = {rows}"] if rows_too else []), f"columns = {columns}"]

    def pointers(self, used: Sequence[Value]) -> dict[str, str]:
        """Kernel parameters for the inputs among `used`, with their host texts."""
        return {self.inputs[value].pointer: self.inputs[value].host for value in used if value in self.inputs}

    def numbers(self, used: Sequence[Value]) -> dict[str, str]:
        """Kernel parameters for strides, periods and constants that `used` need, with their host texts."""
        arguments: dict[str, str] = {}
        for value in used:
            if value in self.inputs:
                operand = self.inputs[value]
                if operand.apart:
                    arguments[f"{operand.name}_stride"] = f"{operand.host}.stride(-{self.domain.trailing + 1})"
                for part in ("inner", "period"):
                    text = getattr(operand.row_index, part, None)
                    if text:
                        sizes = [self.size(axis) for axis in range(len(self.domain.shape))]
                        arguments[f"{operand.name}_{part}"] = text.format(*sizes)
            elif value in self.constants:
                name, text = self.constants[value]
                arguments[name] = text
        return arguments

    def address(self, operand: Operand, index: Index) -> str:
        """The pointer expression of an input's elements."""
        row = index.row
        if operand.row_index is not None and operand.row_index.inner:
            row = f"{row} // {operand.name}_inner"
        if operand.row_index is not None and operand.row_index.period:
            row = f"{row} % {operand.name}_period"
        if self._everything(operand.span):
            if index.flat and not operand.apart and row == index.row:
                return f"{operand.pointer} + {index.flat}"
            stride = f"{operand.name}_stride" if operand.apart else "columns"
            row = f"({row})" if row != index.row else row
            return f"{operand.pointer} + {row} * {stride} + {index.column}"
        if operand.span.rows:
            return f"{operand.pointer} + {row}"
        return f"{operand.pointer} + {index.column}" if operand.span.columns else operand.pointer

    def needs_row(self, value: Value) -> bool:
        """Whether a kernel over consecutive elements needs the row to address this input."""
        operand = self.inputs[value]
        index = operand.row_index
        return operand.span.rows and (
            operand.apart or not operand.span.columns or index is None or bool(index.inner or index.period)
        )

    def _everything(self, span: Span) -> bool:
        """Whether a tensor of that span has an element for every element of the domain."""
        return span.columns and (span.rows or self.domain.rows == 1)

    def load(self, value: Value, index: Index, other: str = "", options: str = "") -> str:
        """The expression that loads an input, in the type it is computed in."""
        operand = self.inputs[value]
        mask = index.mask(operand.span)
        parts = [self.address(operand, index)]
        if mask:
            parts.append(f"mask={mask}")
        if mask and other:
            parts.append(f"other={other}")
        if options and operand.span.rows and operand.span.columns:
            parts.append(options)
        text = f"tl.load({', '.join(parts)})"
        return f"{text}.to(tl.float32)" if value.dtype in HALVES else text

    def load_flat(self, value: Value, index: Index, other: str = "") -> str:
        """The expression that loads a dense input of the domain's full size in memory order."""
        operand = self.inputs[value]
        default = f", other={other}" if other else ""
        text = f"tl.load({operand.pointer} + {index.flat}, mask={index.both_mask}{default})"
        return f"{text}.to(tl.float32)" if value.dtype in HALVES else text

    def store(self, place: int, text: str, index: Index) -> str:
        """The statement that stores a value as an output."""
        output = self.graph.outputs[place]
        span = self.domain.span(output.value)
        pointer = f"{self.output_names[place]}_ptr"
        if text.endswith(_WIDENED) and output.dtype in HALVES:
            text = text.removesuffix(_WIDENED)
        if self._everything(span):
            address = f"{pointer} + {index.flat or f'{index.row} * columns + {index.column}'}"
        else:
            address = f"{pointer} + {index.row}" if span.rows else pointer
        mask = index.mask(span)
        return f"tl.store({address}, {text}{f', mask={mask}' if mask else ''})"

    def allocations(self) -> list[str]:
        """Host statements that make the outputs."""
        return [
            self._allocation(name, output) for name, output in zip(self.output_names, self.graph.outputs, strict=True)
        ]

    def _allocation(self, name: str, output: Output) -> str:
        same = [operand for operand in self.inputs.values() if operand.value.dtype is output.dtype]
        alike = [
            operand for operand in same if operand.host in self.graph.arguments and operand.value.shape == output.shape
        ]
        if alike:
            return f"{name} = torch.empty_like({alike[0].host})"
        if output.sizes is None:
            raise Mismatch("A size of the result is no function of the inputs' sizes that is visible.")
        sizes = "(" + "".join(f"{size}, " for size in output.sizes).rstrip(" ") + ")"
        if len(output.sizes) > 1:
            sizes = sizes.replace(",)", ")").replace(",", ", ").replace(",  ", ", ")
        anchor = self.anchor()
        dtype = f"{same[0].host}.dtype" if same else str(output.dtype)
        return f"{name} = torch.empty({sizes}, device={anchor}.device, dtype={dtype})"

    def anchor(self) -> str:
        """An input whose device results are made on."""
        return next(name for name, kind in self.graph.arguments.items() if kind == "torch.Tensor")

    def scope(self) -> dict[Value, str]:
        """The texts of all constants inside a kernel."""
        texts: dict[Value, str] = {}
        for value in self.graph.values():
            if value in self.constants:
                texts[value] = self.constants[value][0]
            elif value.op == "constant":
                number = value.constant
                assert number is not None
                texts[value] = literal(number)
        return texts


def is_attribute(text: str) -> bool:
    """Whether a host text is a parameter or buffer of the module, as it is."""
    return text.startswith("self.") and text.replace(".", "").replace("_", "").isalnum()


def only_pointwise(values: Sequence[Value], *others: str) -> None:
    """Checks which operations a graph has.

    Raises:
        Mismatch: naming the first that is neither pointwise nor among `others`.
    """
    for value in values:
        if value.op not in POINTWISE and value.op not in ("input", "constant", *others):
            raise Unrelated(f"It contains {_spoken(value.op)}.")


def inputs_of(values: Sequence[Value]) -> Iterator[Value]:
    """The inputs among values."""
    return (value for value in values if value.op == "input")


def _spoken(op: str) -> str:
    return {
        "matmul": "a matrix product",
        "reduce": "a reduction",
        "softmax": "a softmax",
        "log_softmax": "a softmax",
        "attention": "attention",
        "pool": "pooling",
        "reshape": "a reshaped intermediate result",
        "pick": "a gather",
        "count": "a mean",
    }.get(op, op)
