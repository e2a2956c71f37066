"""Templates for graphs that reduce along rows: normalisation, softmax, row reductions, losses."""

from __future__ import annotations

from collections.abc import Mapping

from engine.lowering.structure import Structure
from engine.lowering.structure import Value as Parameter
from engine.lowering.templates import tuning
from engine.lowering.templates.constructor import Constructor
from engine.lowering.templates.domain import Span
from engine.lowering.templates.graph import Graph
from engine.lowering.templates.operands import Operands
from engine.lowering.templates.parts import add_parts_kernel, finish_kernel, linear_in, partial_dtype
from engine.lowering.templates.row_kernels import RowForm, RowWriter
from engine.lowering.templates.row_plan import RowPlan, plan_rows
from engine.lowering.templates.writing import Kernel, module

_WIDEST_ROW = 65536
_WARPS = (1, 2, 4, 8, 16, 32)

_IDEAS = {
    "one_pass": "Every program keeps one row in registers.",
    "several_rows": "Every program keeps several rows in registers.",
    "persistent": "A fixed number of programs stride over the rows; each row is kept in registers.",
    "looped": "Every program walks over one row in blocks of columns.",
    "online": "Every program walks over one row in blocks of columns, with a running softmax.",
    "running_moments": "Every program walks over one row in blocks, with a running mean and variance.",
    "split": "Several programs share every row; a second kernel joins their parts.",
    "split_atomic": "Several programs share every row and add their sums atomically.",
    "atomic_totals": "Every program walks over one row and adds to the totals atomically.",
}


class Rowwise:
    """A graph over rows, and the kernels that compute it."""

    def __init__(self, graph: Graph, constructor: Constructor, target: tuning.Target) -> None:
        """Matches the graph.

        Raises:
            Mismatch: it does not reduce along rows only.
        """
        self.plan: RowPlan = plan_rows(graph)
        self.constructor, self.target = constructor, target
        self.family = family_name(self.plan)
        self.width = tuning.next_power_of_two(self.plan.domain.columns)
        spans = [self.plan.domain.span(value) for value in self.plan.graph.values() if value.op == "input"]
        self.wide_inputs = max(1, spans.count(Span(True, True)))

    def structures(self) -> list[Structure]:
        """All ways of writing it."""
        found: list[Structure] = []
        if self.width <= _WIDEST_ROW:
            found += self._whole_rows()
        block = min(self.width, 4096)
        warps = tuning.warps_for(block, 16)
        blocks = tuple(size for size in (512, 1024, 2048, 4096, 8192) if size <= max(self.width, 512))
        kinds = {pair.kind for pair in self.plan.pairs}
        base: dict[str, Parameter] = {"BLOCK": block, "num_warps": warps}
        choices: dict[str, tuple[Parameter, ...]] = {"BLOCK": blocks, "num_warps": _WARPS}
        passes = len(self.plan.passes(False)) + self.plan.wide_outputs
        if passes > 1:
            base |= {"keep": True}
            choices |= {"keep": (False, True)}
        found.append(
            Structure(
                f"{self.family}/looped",
                f"each program walks over one row in blocks, {_times(passes)}",
                base,
                choices,
                lambda chosen: self._render(
                    chosen, RowForm(looped=True, keep=bool(chosen.get("keep", False))), "looped"
                ),
            )
        )
        if kinds:
            name = "online" if "softmax" in kinds else "running_moments"
            fewer = len(self.plan.passes(True)) + self.plan.wide_outputs
            found.append(
                Structure(
                    f"{self.family}/{name}",
                    f"each program walks over one row in blocks, {_times(fewer)}, statistics kept up to date",
                    base,
                    choices,
                    lambda chosen: self._render(
                        chosen, RowForm(looped=True, paired=True, keep=bool(chosen.get("keep", False))), name
                    ),
                )
            )
        found += self._shared_rows(base, choices)
        return found

    def _shared_rows(self, base: dict[str, Parameter], choices: dict[str, tuple[Parameter, ...]]) -> list[Structure]:
        """Structures in which programs share a row, or add up totals in any order."""
        plan = self.plan
        if plan.totals:
            if any(total.settings["kind"] != "sum" for total in plan.totals):
                return []
            return [
                Structure(
                    f"{self.family}/atomic",
                    "each program walks over one row and adds to the totals atomically",
                    base,
                    choices,
                    lambda chosen: self._render(
                        chosen,
                        RowForm(looped=True, paired=True, atomic=True, keep=bool(chosen.get("keep", False))),
                        "atomic_totals",
                    ),
                )
            ]
        if plan.wide_outputs or len(plan.passes(False)) > 1:
            return []
        split = max(2, min(16, 4 * self.target.processors // plan.domain.rows))
        shared = {**base, "SPLIT": tuning.next_power_of_two(split)}, {**choices, "SPLIT": (2, 4, 8, 16)}
        found = [
            Structure(
                f"{self.family}/split",
                "several programs share each row; a second kernel joins their parts",
                *shared,
                lambda chosen: self._render(chosen, RowForm(looped=True, split=True), "split"),
            )
        ]
        if linear_in(plan.graph, plan.reductions):
            found.append(
                Structure(
                    f"{self.family}/split_atomic",
                    "several programs share each row and add their sums atomically",
                    *shared,
                    lambda chosen: self._render(chosen, RowForm(looped=True, split=True, atomic=True), "split_atomic"),
                )
            )
        return found

    def _whole_rows(self) -> list[Structure]:
        warps = tuning.warps_for(self.width, 16 if self.wide_inputs == 1 else 8)
        few = self.target.program_counts()
        found = [
            Structure(
                f"{self.family}/one_pass",
                "each program keeps one whole row in registers",
                {"num_warps": warps},
                {"num_warps": _WARPS},
                lambda chosen: self._render(chosen, RowForm(), "one_pass"),
            ),
            Structure(
                f"{self.family}/persistent",
                "a fixed number of programs stride over the rows, each row whole in registers",
                {"PROGRAMS": self.target.processors * 4, "num_warps": warps},
                {"PROGRAMS": few, "num_warps": _WARPS},
                lambda chosen: self._render(chosen, RowForm(persistent=True), "persistent"),
            ),
        ]
        rows = (1, 2, 4, 8, 16, 32)
        if self.width * 2 <= 32768:
            default = max(2, min(16, 4096 // self.width))
            found.insert(
                1,
                Structure(
                    f"{self.family}/several_rows",
                    "each program keeps several whole rows in registers",
                    {"ROWS": default, "num_warps": tuning.warps_for(self.width * default, 16)},
                    {"ROWS": rows[1:], "num_warps": _WARPS},
                    lambda chosen: self._render(chosen, RowForm(several=True), "several_rows"),
                ),
            )
        return found

    def _render(self, chosen: Mapping[str, Parameter], form: RowForm, name: str) -> str:
        warps = int(chosen["num_warps"])
        rows = int(chosen.get("ROWS", 1))
        lanes = rows * (int(chosen["BLOCK"]) if form.looped else self.width)
        tuning.check_lanes(lanes, warps, self.wide_inputs)
        operands = Operands(self.plan.graph, self.plan.domain)
        writer = RowWriter(self.plan, form, operands)
        kernel = writer.kernel(f"{self.family}_rows")
        programs = f"triton.cdiv(rows, {rows})" if form.several else "rows"
        if form.persistent:
            programs = f"min({chosen['PROGRAMS']}, {programs})"
        kernel.meta = {"ROWS": str(rows)} if form.several else {}
        kernel.meta["BLOCK"] = str(chosen["BLOCK"]) if form.looped else "triton.next_power_of_2(columns)"
        kernel.options = {"num_warps": warps}
        allocations = operands.allocations()
        if form.split and form.atomic:
            allocations = [line.replace("torch.empty", "torch.zeros") for line in allocations]
        host = [*operands.host, *operands.count_lines(), *allocations]
        kernels = [kernel]
        if form.split:
            kernel.meta["SPLIT"] = str(chosen["SPLIT"])
            programs = f"rows, {chosen['SPLIT']}"
        if self.plan.totals:
            host.append(f"programs = {'1' if form.atomic else programs}")
            programs = "rows" if form.atomic else "programs"
            maker = "zeros" if form.atomic else "empty"
            host += [
                f"{partial} = torch.{maker}(programs, device={operands.anchor()}.device, dtype={partial_dtype(total)})"
                for partial, total in zip(writer.partials(), self.plan.totals, strict=True)
            ]
        kernel.grid = f"({programs})" if form.split else f"({programs},)"
        if form.split and not form.atomic:
            host += self._parts(operands, writer, int(chosen["SPLIT"]), kernels)
        else:
            host.append(kernel.launch())
        if self.plan.totals:
            counts = {value: writer.body.text(value) for value in self.plan.graph.values() if value.op == "count"}
            finish = finish_kernel(operands, self.plan.totals, writer.partials(), counts)
            host.append(finish.launch())
            kernels.append(finish)
        idea = _IDEAS[name]
        return module(self.plan.graph, self.constructor, idea, kernels, host, operands.output_names)

    def _parts(self, operands: Operands, writer: RowWriter, split: int, kernels: list[Kernel]) -> list[str]:
        """Adds the kernel that joins the parts of rows; the host statements for both kernels."""
        names, reductions = writer.partials(), self.plan.reductions
        counts = {value: writer.body.text(value) for value in self.plan.graph.values() if value.op == "count"}
        device = f"device={operands.anchor()}.device"
        lines = [
            f"{name} = torch.empty(({split}, rows), {device}, dtype={partial_dtype(value)})"
            for name, value in zip(names, reductions, strict=True)
        ]
        join = add_parts_kernel(operands, reductions, names, split, {"rows": "rows"}, counts)
        kernels.append(join)
        return [*lines, kernels[0].launch(), "count = rows", join.launch()]


def family_name(plan: RowPlan) -> str:
    """What people call such a graph."""
    kinds = {pair.kind for pair in plan.pairs}
    if plan.totals:
        return "loss"
    if not plan.wide_outputs:
        return "reduction"
    if "softmax" in kinds:
        logs = any(value.op == "log" for value in plan.graph.values())
        return "log_softmax" if logs else "softmax"
    if "moments" in kinds:
        return "layer_norm"
    if any(value.op == "rsqrt" for value in plan.graph.values()):
        return "rms_norm"
    return "normalisation"


def _times(passes: int) -> str:
    return {1: "once", 2: "twice"}.get(passes, f"{passes} times")
