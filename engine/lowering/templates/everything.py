"""Templates for graphs that reduce whole tensors to single numbers, element by element in memory order."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from engine.lowering.structure import Structure
from engine.lowering.structure import Value as Parameter
from engine.lowering.templates import tuning
from engine.lowering.templates.body import Body
from engine.lowering.templates.constructor import Constructor
from engine.lowering.templates.domain import lay_out
from engine.lowering.templates.graph import FLOATS, Graph, Mismatch, Unrelated
from engine.lowering.templates.operands import Index, Operands, inputs_of, only_pointwise
from engine.lowering.templates.parts import IDENTITY, combined, finish_kernel, partial_dtype, start_text
from engine.lowering.templates.summary import fused
from engine.lowering.templates.writing import Kernel, module

_IDEAS = {
    "flat": "A fixed number of programs stride over all elements; a second kernel joins what they found.",
    "flat_atomic": "A fixed number of programs stride over all elements and add to the totals atomically.",
}


class Everything:
    """A graph of totals, and the kernels that compute it."""

    def __init__(self, graph: Graph, constructor: Constructor, target: tuning.Target) -> None:
        """Matches the graph.

        Raises:
            Mismatch: it does something else than reduce everything, or its inputs differ in shape.
        """
        only_pointwise(graph.values(), "reduce", "reshape", "count")
        self.totals = [value for value in graph.values() if value.op == "reduce"]
        if not self.totals:
            raise Unrelated("It has no reduction.")
        shape = max((value.inputs[0].shape for value in self.totals), key=math.prod)
        for value in self.totals:
            if value.inputs[0].shape != shape or math.prod(value.shape) != 1:
                raise Unrelated("It does not reduce everything at once.")
            if value.settings["kind"] != "sum" and value.dtype not in FLOATS:
                raise Mismatch("It has a maximum of whole numbers.")
        for value in inputs_of(graph.values()):
            if value.text("layout") != "dense" or math.prod(value.shape) not in (1, math.prod(shape)):
                raise Mismatch("Its inputs differ in shape, or are views.")
        if any(math.prod(output.value.shape) != 1 for output in graph.outputs):
            raise Unrelated("It returns more than single numbers.")
        self.graph, self.constructor, self.target = graph, constructor, target
        self.domain = lay_out(graph, shape, 1)

    def structures(self) -> list[Structure]:
        """All ways of writing it."""
        base: dict[str, Parameter] = {"BLOCK": 2048, "PROGRAMS": self.target.processors * 4, "num_warps": 8}
        choices: dict[str, tuple[Parameter, ...]] = {
            "BLOCK": (512, 1024, 2048, 4096, 8192),
            "PROGRAMS": self.target.program_counts(),
            "num_warps": (2, 4, 8, 16),
        }
        found = [
            Structure(
                "loss/flat",
                "a fixed number of programs stride over all elements; a second kernel joins what they found",
                base,
                choices,
                lambda chosen: self._render(chosen, "flat"),
            )
        ]
        if all(value.settings["kind"] == "sum" for value in self.totals):
            found.append(
                Structure(
                    "loss/flat_atomic",
                    "a fixed number of programs stride over all elements and add to the totals atomically",
                    base,
                    choices,
                    lambda chosen: self._render(chosen, "flat_atomic"),
                )
            )
        return found

    def _render(self, chosen: Mapping[str, Parameter], form: str) -> str:
        block, programs, warps = (int(chosen[name]) for name in ("BLOCK", "PROGRAMS", "num_warps"))
        tuning.check_lanes(block, warps, 2)
        operands = Operands(self.graph, self.domain)
        names = operands.kernel_names()
        body = Body(names, operands.scope())
        counts = {}
        for value in self.graph.values():
            if value.op == "count":
                less = value.settings["less"]
                counts[value] = f"(count - {less})" if less else "count"
                body.know(value, counts[value])
        partials = ["partials"] if len(self.totals) == 1 else [f"partial_{n + 1}" for n in range(len(self.totals))]
        self._walk(body, operands)
        for place, (total, partial) in enumerate(zip(self.totals, partials, strict=True)):
            text = f"tl.{total.settings['kind']}(running_{place + 1}, axis=0)"
            if form == "flat_atomic":
                body.line(f"tl.atomic_add({partial}_ptr, {text})")
            else:
                body.line(f"tl.store({partial}_ptr + tl.program_id(0), {text})")
        words = set(re.findall(r"\w+", "\n".join(body.lines)))
        values = self.graph.values()
        arguments = {**operands.pointers(values), **{f"{name}_ptr": name for name in partials}, "count": "count"}
        arguments |= operands.numbers(values)
        arguments = {name: text for name, text in arguments.items() if name in words}
        largest = max(inputs_of(values), key=lambda value: math.prod(value.shape))
        grid = f"min({programs}, triton.cdiv(count, {block}))"
        host = [*operands.host, f"count = {operands.inputs[largest].host}.numel()", *operands.allocations()]
        host.append(f"programs = {'1' if form == 'flat_atomic' else grid}")
        maker = "zeros" if form == "flat_atomic" else "empty"
        host += [
            f"{name} = torch.{maker}(programs, device={operands.anchor()}.device, dtype={partial_dtype(total)})"
            for name, total in zip(partials, self.totals, strict=True)
        ]
        grid = f"({grid},)" if form == "flat_atomic" else "(programs,)"
        comment = f"Fuses {fused(values)} over all elements."
        kernel = Kernel("reduce_all", comment, grid, arguments, {"BLOCK": str(block)}, {"num_warps": warps}, body.lines)
        finish = finish_kernel(operands, self.totals, partials, counts)
        host += [kernel.launch(), finish.launch()]
        return module(self.graph, self.constructor, _IDEAS[form], [kernel, finish], host, operands.output_names)

    def _walk(self, body: Body, operands: Operands) -> None:
        """The loop over blocks of elements, which keeps one running number a lane."""
        index = Index(flat="start + lane", row_mask="inside", column_mask="inside")
        for place, total in enumerate(self.totals):
            body.line(f"running_{place + 1} = {start_text(total, 'BLOCK')}")
        body.line("lane = tl.arange(0, BLOCK)")
        arguments = [total.inputs[0] for total in self.totals]
        for value in inputs_of(self.graph.values()):
            if math.prod(value.shape) == 1:
                body.define(value, operands.load(value, Index(column_mask="")), operands.inputs[value].name)
        body.line("for block in range(tl.program_id(0), tl.cdiv(count, BLOCK), tl.num_programs(0)):")
        body.deeper()
        body.line("start = tl.cast(block, tl.int64) * BLOCK")
        body.line("inside = lane < count - start")
        for value in inputs_of(self.graph.values()):
            if math.prod(value.shape) != 1:
                other = "0.0" if value.dtype in FLOATS else ""
                text = operands.load_flat(value, index, other)
                body.define(value, text, operands.inputs[value].name, 0.0 if other else None)
        body.compute(arguments)
        for place, total in enumerate(self.totals):
            kind = str(total.settings["kind"])
            text = body.clean(total.inputs[0], "inside", IDENTITY[kind])
            body.line(combined(kind, f"running_{place + 1}", text))
        body.deeper(-1)
