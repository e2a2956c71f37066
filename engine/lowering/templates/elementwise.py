"""Templates for graphs of pointwise operations over broadcast inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping

from engine.lowering.structure import Structure
from engine.lowering.structure import Value as Parameter
from engine.lowering.templates import tuning
from engine.lowering.templates.body import Body
from engine.lowering.templates.constructor import Constructor
from engine.lowering.templates.domain import Domain, Span, lay_out
from engine.lowering.templates.graph import Graph, Mismatch, Value
from engine.lowering.templates.operands import Index, Operands, inputs_of, only_pointwise
from engine.lowering.templates.summary import fused
from engine.lowering.templates.writing import Kernel, meta, module

_FULL = Span(True, True)


class Elementwise:
    """A pointwise graph, and the kernels that compute it."""

    def __init__(self, graph: Graph, constructor: Constructor, target: tuning.Target) -> None:
        """Matches the graph.

        Raises:
            Mismatch: it has operations that are not pointwise, or outputs of different shapes.
        """
        self.graph, self.constructor, self.target = graph, constructor, target
        only_pointwise(graph.values())
        self.domain = domain_of(graph)
        self.simple = all(self._whole(value) for value in inputs_of(graph.values()))

    def structures(self) -> list[Structure]:
        """All ways of writing it."""
        warps = (1, 2, 4, 8, 16)
        blocks = (256, 512, 1024, 2048, 4096)
        found = [
            Structure(
                "elementwise/flat",
                "each program computes one block of consecutive elements",
                {"BLOCK": 1024, "num_warps": 4},
                {"BLOCK": blocks, "num_warps": warps},
                lambda chosen: self._flat(chosen, "flat"),
            ),
            Structure(
                "elementwise/several_blocks",
                "each program computes several blocks one after another, so that many loads are in flight",
                {"BLOCK": 1024, "STEPS": 4, "num_warps": 4},
                {"BLOCK": blocks, "STEPS": (2, 4, 8, 16), "num_warps": warps},
                lambda chosen: self._flat(chosen, "several"),
            ),
            Structure(
                "elementwise/persistent",
                "a fixed number of programs stride over all blocks",
                {"BLOCK": 1024, "PROGRAMS": self.target.processors * 8, "num_warps": 4},
                {"BLOCK": blocks, "PROGRAMS": self.target.program_counts(), "num_warps": warps},
                lambda chosen: self._flat(chosen, "persistent"),
            ),
        ]
        if not self.simple and self.domain.columns > 1:
            width = tuning.block_for(self.domain.columns, 1024)
            found.append(
                Structure(
                    "elementwise/tiles",
                    "each program computes a tile of rows and columns and loads broadcast operands once",
                    {"ROWS": 4, "BLOCK": width, "num_warps": 4},
                    {"ROWS": (1, 2, 4, 8, 16), "BLOCK": (128, 256, 512, 1024, 2048), "num_warps": warps},
                    self._tiles,
                )
            )
        return found

    def _whole(self, value: Value) -> bool:
        return not value.shape or (
            value.text("layout") == "dense" and math.prod(value.shape) in (1, math.prod(self.domain.shape))
        )

    def _flat(self, chosen: Mapping[str, Parameter], form: str) -> str:
        block, steps, warps = int(chosen["BLOCK"]), int(chosen.get("STEPS", 1)), int(chosen["num_warps"])
        tuning.check_lanes(block, warps)
        operands = Operands(self.graph, self.domain)
        values = self.graph.values()
        inputs = list(inputs_of(values))
        once = [value for value in inputs if self.domain.span(value) == Span(False, False)]
        index = Index(flat="start + lane", column_mask="inside", row_mask="inside")
        body = Body(operands.kernel_names(), operands.scope())
        sizes = {"count": "count"} if self.simple else {"count": "count", "columns": "columns"}
        lanes = "lane = tl.arange(0, BLOCK)"
        for value in once:
            body.define(value, operands.load(value, index))
        if form == "flat":
            body.line("start = tl.program_id(0).to(tl.int64) * BLOCK")
            body.line(lanes)
        elif form == "several":
            body.line(lanes)
            body.line("for step in tl.static_range(STEPS):")
            body.deeper()
            body.line("start = (tl.program_id(0).to(tl.int64) * STEPS + step) * BLOCK")
        else:
            body.line(lanes)
            body.line("for block in range(tl.program_id(0), tl.cdiv(count, BLOCK), tl.num_programs(0)):")
            body.deeper()
            body.line("start = tl.cast(block, tl.int64) * BLOCK")
        body.line("inside = lane < count - start")
        if not self.simple:
            body.line("first_row = start // columns")
            body.line("place = (start - first_row * columns).to(tl.int32) + lane")
            if any(operands.needs_row(value) for value in inputs):
                body.line("row = first_row + place // columns")
            body.line("column = place % columns")
        for value in inputs:
            if value not in once:
                body.define(value, operands.load(value, index), operands.inputs[value].name)
        body.compute([output.value for output in self.graph.outputs])
        for place, output in enumerate(self.graph.outputs):
            body.line(operands.store(place, body.short(output.value), index))
        grids = {
            "flat": f"(triton.cdiv(count, {block}),)",
            "several": f"(triton.cdiv(count, {block * steps}),)",
            "persistent": f"(min({chosen.get('PROGRAMS')}, triton.cdiv(count, {block})),)",
        }
        kernel = self._kernel(operands, grids[form], sizes, body, {"num_warps": warps})
        kernel.meta = meta(chosen, *(("BLOCK", "STEPS") if form == "several" else ("BLOCK",)))
        host = [*operands.host, *operands.allocations()]
        if not self.simple:
            host += operands.count_lines(rows_too=False)
        host.append(f"count = {operands.output_names[0]}.numel()")
        return self._module(operands, kernel, host, form)

    def _tiles(self, chosen: Mapping[str, Parameter]) -> str:
        rows, block, warps = int(chosen["ROWS"]), int(chosen["BLOCK"]), int(chosen["num_warps"])
        tuning.check_lanes(rows * block, warps)
        operands = Operands(self.graph, self.domain)
        index = Index(row_mask="row < rows", column_mask="column < columns")
        body = Body(operands.kernel_names(), operands.scope())
        body.line("row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]")
        body.line("column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]")
        body.line("inside = (row < rows) & (column < columns)")
        for value in inputs_of(self.graph.values()):
            body.define(value, operands.load(value, index), operands.inputs[value].name)
        body.compute([output.value for output in self.graph.outputs])
        for place, output in enumerate(self.graph.outputs):
            body.line(operands.store(place, body.short(output.value), index))
        sizes = {"rows": "rows", "columns": "columns"}
        grid = f"(triton.cdiv(rows, {rows}), triton.cdiv(columns, {block}))"
        kernel = self._kernel(operands, grid, sizes, body, {"num_warps": warps})
        kernel.meta = meta(chosen, "ROWS", "BLOCK")
        host = [*operands.host, *operands.allocations(), *operands.count_lines()]
        return self._module(operands, kernel, host, "tiles")

    def _kernel(
        self, operands: Operands, grid: str, sizes: dict[str, str], body: Body, options: dict[str, Parameter]
    ) -> Kernel:
        values = self.graph.values()
        outputs = {f"{name}_ptr": name for name in operands.output_names}
        arguments = {**operands.pointers(values), **outputs, **sizes, **operands.numbers(values)}
        return Kernel(
            "fused_elementwise", f"Fuses {fused(values)}.", grid, arguments, options=options, lines=body.lines
        )

    def _module(self, operands: Operands, kernel: Kernel, host: list[str], form: str) -> str:
        idea = {
            "flat": "Every program computes one block of consecutive elements.",
            "several": "Every program computes several blocks of consecutive elements.",
            "persistent": "A fixed number of programs stride over all blocks of elements.",
            "tiles": "Every program computes a tile of rows and columns; broadcast operands are loaded once a tile.",
        }[form]
        return module(self.graph, self.constructor, idea, [kernel], [*host, kernel.launch()], operands.output_names)


def domain_of(graph: Graph) -> Domain:
    """The domain of a pointwise graph: the shape all outputs share, its last axes as columns.

    Raises:
        Mismatch: the outputs differ in shape.
    """
    shapes = {output.value.shape for output in graph.outputs}
    if len(shapes) != 1:
        raise Mismatch("Its outputs differ in shape.")
    shape = next(iter(shapes))
    return lay_out(graph, shape, _trailing(graph, shape))


def _trailing(graph: Graph, shape: tuple[int, ...]) -> int:
    """How many last axes every operand covers wholly or not at all, so that they can be one."""
    trailing = 1
    while trailing < len(shape) - 1:
        wider = trailing + 1
        for value in inputs_of(graph.values()):
            tail = value.shape[-wider:] if len(value.shape) >= wider else value.shape
            if len(value.shape) >= wider:
                whole = tail == shape[-wider:]
                absent = all(size == 1 for size in tail)
            else:
                whole, absent = False, all(size == 1 for size in value.shape)
            if not (whole or absent):
                return trailing
            if value.text("layout") == "rows" and whole:
                return trailing
        trailing = wider
    return trailing
