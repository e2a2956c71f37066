"""Templates for graphs that reduce along an axis that is not the last: down the columns of a matrix.

The tensor is seen as (outer, reduced, columns); columns are next to each other in memory, so that a
tile of some reduced places and some columns is read in whole lines.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from engine.lowering.structure import Structure
from engine.lowering.structure import Value as Parameter
from engine.lowering.templates import tuning
from engine.lowering.templates.body import Body
from engine.lowering.templates.constructor import Constructor
from engine.lowering.templates.domain import Span, lay_out
from engine.lowering.templates.graph import FLOATS, Graph, Mismatch, Shape, Unrelated, Value
from engine.lowering.templates.operands import Index, Operands, only_pointwise
from engine.lowering.templates.parts import IDENTITY, add_parts_kernel, combined, linear_in, partial_dtype, start_text
from engine.lowering.templates.summary import fused
from engine.lowering.templates.writing import Kernel, module

_MOST_ACROSS = 65535
_IDEAS = {
    "columns": "Every program walks down some columns in blocks.",
    "split": "Several programs share the columns; a second kernel joins their parts.",
    "atomic": "Several programs share the columns and add their sums atomically.",
}


class Columnwise:
    """A graph that reduces down columns, and the kernels that compute it."""

    def __init__(self, graph: Graph, constructor: Constructor, target: tuning.Target) -> None:
        """Matches the graph.

        Raises:
            Mismatch: it does not reduce along inner or leading axes only, all the same ones.
        """
        only_pointwise(graph.values(), "reduce", "reshape", "count")
        self.reduces = [value for value in graph.values() if value.op == "reduce"]
        if not self.reduces:
            raise Unrelated("It has no reduction.")
        self.graph, self.constructor, self.target = graph, constructor, target
        shape, self.axes = self._reduced_axes()
        self.outer = math.prod(shape[: self.axes[0]])
        self.reduced = math.prod(shape[axis] for axis in self.axes)
        self.columns = math.prod(shape[self.axes[-1] + 1 :])
        if self.outer > _MOST_ACROSS:
            raise Mismatch(f"Its columns repeat more than {_MOST_ACROSS} times, more than a grid can be wide.")
        self.domain = lay_out(graph, shape, len(shape) - self.axes[-1] - 1)
        self.row_values = {value for value in graph.values() if self._varies_down(value)}
        for value in graph.values():
            self._check(value)
        self.levels = self._levels()
        self.wide = [place for place, output in enumerate(graph.outputs) if output.value in self.row_values]

    def _reduced_axes(self) -> tuple[Shape, tuple[int, ...]]:
        shape = max((value.inputs[0].shape for value in self.reduces), key=math.prod)
        axes = {value.numbers("axes") for value in self.reduces}
        if len(axes) != 1 or any(value.inputs[0].shape != shape for value in self.reduces):
            raise Mismatch("Its reductions run along different axes.")
        found = axes.pop()
        if found[-1] == len(shape) - 1 or found != tuple(range(found[0], found[-1] + 1)):
            raise Unrelated("It reduces along the last axis, or along axes apart.")
        if math.prod(shape[found[-1] + 1 :]) == 1:
            raise Mismatch("It has a single column.")
        return shape, found

    def _varies_down(self, value: Value) -> bool:
        return any(axis in self.axes for axis in self.domain.axes.get(value, ()) if axis is not None)

    def _check(self, value: Value) -> None:
        if value.op == "reduce" and value.settings["kind"] != "sum" and value.dtype not in FLOATS:
            raise Mismatch("It has a maximum of whole numbers.")
        span = self.domain.span(value) if value.shape else Span(False, False)
        if value.op == "input" and span.rows and value not in self.row_values:
            raise Mismatch("An operand follows the outer axes only.")
        if value.op == "input" and span.rows and not span.columns and self.outer > 1:
            raise Mismatch("An operand covers some of the axes only.")

    def _levels(self) -> list[list[Value]]:
        level: dict[Value, int] = {}
        for value in self.graph.values():
            level[value] = max((level[source] for source in value.inputs), default=0) + (value.op == "reduce")
        return [
            [value for value in self.reduces if level[value] == number + 1]
            for number in range(max(level[value] for value in self.reduces))
        ]

    def structures(self) -> list[Structure]:
        """All ways of writing it."""
        family = "reduction"
        if self.wide:
            family = "softmax" if any(value.op == "exp" for value in self.row_values) else "normalisation"
        block = min(tuning.next_power_of_two(self.columns), 128)
        rows = max(1, 4096 // block) if self.columns < 128 else 32
        programs = self.outer * -(-self.columns // block)
        base: dict[str, Parameter] = {"ROWS": min(rows, 128), "BLOCK": block, "num_warps": 4}
        choices: dict[str, tuple[Parameter, ...]] = {
            "ROWS": (4, 8, 16, 32, 64, 128),
            "BLOCK": (16, 32, 64, 128, 256, 512),
            "num_warps": (1, 2, 4, 8, 16),
        }
        found = [
            Structure(
                f"{family}/columns",
                "each program walks down some columns in blocks",
                base,
                choices,
                lambda chosen: self._render(chosen, "columns"),
            )
        ]
        if self.wide or len(self.levels) > 1:
            return found
        split = max(2, min(64, tuning.next_power_of_two(8 * self.target.processors // max(programs, 1))))
        shared = {**base, "SPLIT": split}, {**choices, "SPLIT": (2, 4, 8, 16, 32, 64)}
        found.append(
            Structure(
                f"{family}/columns_split",
                "several programs share the length of some columns; a second kernel joins their parts",
                *shared,
                lambda chosen: self._render(chosen, "split"),
            )
        )
        if linear_in(self.graph, self.reduces):
            found.append(
                Structure(
                    f"{family}/columns_atomic",
                    "several programs share the length of some columns and add their sums atomically",
                    *shared,
                    lambda chosen: self._render(chosen, "atomic"),
                )
            )
        if programs < self.target.processors:
            found.reverse()
        return found

    def _render(self, chosen: Mapping[str, Parameter], form: str) -> str:
        rows, block, warps = (int(chosen[name]) for name in ("ROWS", "BLOCK", "num_warps"))
        tuning.check_lanes(rows * block, warps, 2)
        operands = Operands(self.graph, self.domain)
        host = [*operands.host, *self._size_lines(operands)]
        body = self._open(operands, form)
        parts = ["partials"] if len(self.reduces) == 1 else [f"partial_{n + 1}" for n in range(len(self.reduces))]
        for reductions in self.levels:
            self._pass(body, operands, reductions, form)
        outputs = {f"{name}_ptr": name for name in operands.output_names}
        values = self.graph.values()
        index = Index(column_mask="column < columns", row="0", both_mask="column < columns", row_mask="")
        if form == "split":
            for value, part in zip(self.reduces, parts, strict=True):
                body.line(
                    f"tl.store({part}_ptr + (tl.program_id(2) * tl.num_programs(1) + outer) * columns + column, "
                    f"{body.text(value)}, mask=column < columns)"
                )
            outputs = {f"{part}_ptr": part for part in parts}
            values = _behind(self.reduces)
        else:
            if self.wide:
                self._last_pass(body, operands)
            self._store_columns(body, operands, index, form)
        sizes = {size: size for size in ("reduced", "columns")}
        arguments = {**operands.pointers(values), **outputs, **sizes, **operands.numbers(values)}
        words = set(re.findall(r"\w+", "\n".join(body.lines)))
        arguments = {name: text for name, text in arguments.items() if name in words}
        meta = {"ROWS": str(rows), "BLOCK": str(block)}
        grid = f"(triton.cdiv(columns, {block}), outer)"
        if form != "columns":
            meta["SPLIT"] = str(chosen["SPLIT"])
            grid = f"(triton.cdiv(columns, {block}), outer, {chosen['SPLIT']})"
        spoken = values if form == "split" else self.graph.values()
        comment = f"Fuses {fused(spoken)} down the columns."
        kernel = Kernel("reduce_columns", comment, grid, arguments, meta, {"num_warps": warps}, body.lines)
        kernels = [kernel]
        allocations = operands.allocations()
        if form == "atomic":
            allocations = [line.replace("torch.empty(", "torch.zeros(") for line in allocations]
            allocations = [line.replace("torch.empty_like(", "torch.zeros_like(") for line in allocations]
        host += allocations
        if form == "split":
            anchor, split = operands.anchor(), chosen["SPLIT"]
            for value, part in zip(self.reduces, parts, strict=True):
                shape = f"({split}, outer, columns)"
                host.append(f"{part} = torch.empty({shape}, device={anchor}.device, dtype={partial_dtype(value)})")
            host += [kernel.launch(), "count = outer * columns"]
            finish = add_parts_kernel(operands, self.reduces, parts, int(split), {"reduced": "reduced"}, self._counts())
            kernels.append(finish)
            host.append(finish.launch())
        else:
            host.append(kernel.launch())
        return module(self.graph, self.constructor, _IDEAS[form], kernels, host, operands.output_names)

    def _counts(self) -> dict[Value, str]:
        """The texts of what means divide by."""
        counts: dict[Value, str] = {}
        for value in self.graph.values():
            if value.op == "count":
                if value.numbers("axes") != self.axes:
                    raise Mismatch("A mean covers other axes than its reductions.")
                less = value.settings["less"]
                counts[value] = f"(reduced - {less})" if less else "reduced"
        return counts

    def _size_lines(self, operands: Operands) -> list[str]:
        first, last = self.axes[0], self.axes[-1]
        groups = (range(first), range(first, last + 1), range(last + 1, len(self.domain.shape)))
        texts = (" * ".join(operands.size(axis) for axis in group) or "1" for group in groups)
        return [f"{name} = {text}" for name, text in zip(("outer", "reduced", "columns"), texts, strict=True)]

    def _open(self, operands: Operands, form: str) -> Body:
        names = operands.kernel_names()
        for taken in ("outer", "reduced", "first", "chunk"):
            names.fresh(taken)
        body = Body(names, operands.scope())
        for value, text in self._counts().items():
            body.know(value, text)
        body.line("column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]")
        body.line("outer = tl.program_id(1).to(tl.int64)")
        if form != "columns":
            body.line("chunk = tl.cdiv(tl.cdiv(reduced, ROWS), SPLIT) * ROWS")
            body.line("first = tl.program_id(2) * chunk")
            body.line("last = tl.minimum(first + chunk, reduced)")
        index = Index(column_mask="column < columns")
        for value in self.graph.values():
            if value.op == "input" and value not in self.row_values and (form != "split" or self._needed_early(value)):
                body.define(value, operands.load(value, index, "0.0"), operands.inputs[value].name, 0.0)
        return body

    def _needed_early(self, value: Value) -> bool:
        return value in _behind(self.reduces)

    def _loop(self, body: Body, form: str) -> None:
        span = "0, reduced" if form == "columns" else "first, last"
        body.line(f"for start in range({span}, ROWS):")
        body.deeper()
        body.line("place = start + tl.arange(0, ROWS)[:, None]")
        body.line("row = outer * reduced + place")
        body.line(f"inside = (place < {'reduced' if form == 'columns' else 'last'}) & (column < columns)")

    def _load(self, body: Body, operands: Operands, wanted: Sequence[Value], other: float) -> None:
        index = Index(column_mask="column < columns", row_mask="place < reduced")
        for value in _behind(wanted):
            if value.op == "input" and value in self.row_values and value not in body.texts:
                number = other if value.dtype in FLOATS else None
                text = "" if number is None else "float('-inf')" if math.isinf(number) else repr(number)
                body.define(value, operands.load(value, index, text), operands.inputs[value].name, number)

    def _pass(self, body: Body, operands: Operands, reductions: list[Value], form: str) -> None:
        running: dict[Value, str] = {}
        for value in reductions:
            running[value] = body.fresh("running")
            body.line(f"{running[value]} = {start_text(value, 'ROWS, BLOCK')}")
        known = set(body.texts)
        self._loop(body, form)
        arguments = [value.inputs[0] for value in reductions]
        lowest = all(value.settings["kind"] == "max" for value in reductions)
        self._load(body, operands, arguments, -math.inf if lowest else 0.0)
        body.compute(arguments)
        for value in reductions:
            kind = str(value.settings["kind"])
            text = body.clean(value.inputs[0], "inside", IDENTITY[kind])
            body.line(combined(kind, running[value], text))
        body.deeper(-1)
        body.forget([value for value in list(body.texts) if value not in known])
        for value in reductions:
            body.define(value, f"tl.{value.settings['kind']}({running[value]}, axis=0, keep_dims=True)")

    def _last_pass(self, body: Body, operands: Operands) -> None:
        known = set(body.texts)
        self._loop(body, "columns")
        outputs = [self.graph.outputs[place].value for place in self.wide]
        self._load(body, operands, outputs, 0.0)
        index = Index(column_mask="column < columns", row_mask="place < reduced")
        for place in self.wide:
            value = self.graph.outputs[place].value
            body.compute([value])
            body.line(operands.store(place, body.short(value), index))
        body.deeper(-1)
        body.forget([value for value in list(body.texts) if value not in known])

    def _store_columns(self, body: Body, operands: Operands, index: Index, form: str) -> None:
        for place, output in enumerate(self.graph.outputs):
            if place in self.wide:
                continue
            body.compute([output.value])
            pointer = f"{operands.output_names[place]}_ptr"
            action = "tl.atomic_add" if form == "atomic" else "tl.store"
            text = body.short(output.value)
            body.line(f"{action}({pointer} + outer * columns + column, {text}, mask={index.column_mask})")


def _behind(wanted: Sequence[Value]) -> list[Value]:
    found: dict[Value, None] = {}

    def visit(value: Value) -> None:
        if value not in found:
            for source in value.inputs:
                visit(source)
            found[value] = None

    for value in wanted:
        visit(value)
    return list(found)
