"""Writes kernels over rows: a row in registers, several rows, rows in column blocks, and what follows."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from engine.lowering.templates.body import Body
from engine.lowering.templates.domain import Span
from engine.lowering.templates.graph import HALVES, Output, Value, ordered
from engine.lowering.templates.operands import Index, Operands
from engine.lowering.templates.parts import IDENTITY, IDENTITY_TEXT, combined, start_text
from engine.lowering.templates.pointwise import POINTWISE, at_masked_lanes
from engine.lowering.templates.row_plan import Pair, RowPlan
from engine.lowering.templates.summary import fused
from engine.lowering.templates.writing import Kernel

_FULL = Span(True, True)


@dataclass(frozen=True, slots=True)
class RowForm:
    """Which kernel over rows is wanted.

    `several` rows a program, `persistent` programs, rows `looped` over in blocks, `paired` reductions kept
    up to date together, `keep` rows in the cache between passes, rows `split` over several programs,
    results (or totals) added with `atomic` operations.
    """

    several: bool = False
    persistent: bool = False
    looped: bool = False
    paired: bool = False
    keep: bool = False
    split: bool = False
    atomic: bool = False


class RowWriter:
    """Writes one kernel over rows."""

    def __init__(self, plan: RowPlan, form: RowForm, operands: Operands) -> None:
        self.plan, self.form, self.operands = plan, form, operands
        self.body = Body(operands.kernel_names(), operands.scope())
        self._known_rows: list[Value] = []
        for value in plan.graph.values():
            if value.op == "count":
                self.body.know(value, plan.domain.counted(value))
        row_mask = "row < rows" if form.several else ""
        column_mask = "column < columns" if form.several else "inside"
        self.index = Index(row_mask=row_mask, column_mask=column_mask)
        self.axis = "axis=1, keep_dims=True" if form.several else "axis=0"
        self.values = [value for value in plan.graph.values() if not self.after_rows(value)]
        if form.split and not form.atomic:
            behind = ordered(plan.reductions)
            self.values = [value for value in self.values if value in behind]

    def kernel(self, name: str) -> Kernel:
        """The kernel; the grid, compile-time arguments and options are the caller's."""
        self._open_rows()
        if self.form.looped:
            self._looped_row()
        else:
            self._whole_row()
        if self.form.split and not self.form.atomic:
            self._store_parts()
        else:
            self._store_rows()
        self._close_rows()
        operands = self.operands
        outputs = {
            f"{name}_ptr": name
            for name, output in zip(operands.output_names, self.plan.graph.outputs, strict=True)
            if not self.after_rows(output.value) and not (self.form.split and not self.form.atomic)
        }
        partial = {f"{name}_ptr": name for name in self.partials()}
        arguments = {
            **operands.pointers(self.values),
            **outputs,
            **partial,
            "rows": "rows",
            "columns": "columns",
            **operands.numbers(self.values),
        }
        text = "\n".join(self.body.lines)
        for size in ("rows", "columns"):
            if f"{size}" not in _words(text):
                del arguments[size]
        spoken = self.plan.spoken.values() if self.plan.spoken else self.values
        comment = f"Fuses {fused(spoken)}."
        return Kernel(name, comment, "", arguments, lines=self.body.lines)

    def partials(self) -> list[str]:
        """The names of the buffers that hold what programs leave for the second kernel."""
        if self.form.split and self.form.atomic:
            return []
        count = len(self.plan.reductions if self.form.split else self.plan.totals)
        return [f"partial_{place + 1}" if count > 1 else "partials" for place in range(count)]

    def after_rows(self, value: Value) -> bool:
        """Whether a value is made from totals."""
        if value in self.plan.totals or value.op == "count":
            return value.op != "count"
        return any(self.after_rows(source) for source in value.inputs)

    def _open_rows(self) -> None:
        body, form = self.body, self.form
        if not form.looped:
            body.line(f"column = tl.arange(0, BLOCK){'[None, :]' if form.several else ''}")
            if not form.several:
                body.line("inside = column < columns")
        if form.persistent and not form.looped:
            for value in self._loaded(Span(False, True)):
                self._load(value)
        for value in self._loaded(Span(False, False)):
            self._load(value)
        if form.persistent and self.plan.totals:
            for place, total in enumerate(self.plan.totals):
                body.line(f"running_{place + 1} = {IDENTITY_TEXT[str(total.settings['kind'])]}")
        if form.persistent and form.several:
            body.line("for first in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):")
            body.deeper()
            body.line("row = tl.cast(first, tl.int64) + tl.arange(0, ROWS)[:, None]")
        elif form.persistent:
            body.line("for block in range(tl.program_id(0), rows, tl.num_programs(0)):")
            body.deeper()
            body.line("row = tl.cast(block, tl.int64)")
        elif form.several:
            body.line("row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]")
        else:
            body.line("row = tl.program_id(0).to(tl.int64)")
        if form.split:
            body.line("chunk = tl.cdiv(tl.cdiv(columns, BLOCK), SPLIT) * BLOCK")
            body.line("first = tl.program_id(1) * chunk")
            body.line("last = tl.minimum(first + chunk, columns)")
        if form.several and not form.looped:
            body.line("inside = (row < rows) & (column < columns)")
        early = self._inputs_behind(self.plan.reductions) if form.split and not form.atomic else None
        for value in self._loaded(Span(True, False)):
            if early is None or value in early:
                self._load(value)

    def _close_rows(self) -> None:
        if self.form.persistent:
            self.body.deeper(-1)
            for place, name in enumerate(self.partials()):
                self.body.line(f"tl.store({name}_ptr + tl.program_id(0), running_{place + 1})")

    def _loaded(self, span: Span) -> list[Value]:
        inputs = [value for value in self.values if value.op == "input"]
        picked_only = {
            value for value in inputs if all(user.op == "loaded_pick" for user in self.plan.graph.users()[value])
        }
        return [value for value in inputs if self.plan.domain.span(value) == span and value not in picked_only]

    def _load(self, value: Value, other: float | None = None, options: str = "") -> None:
        if value in self.body.texts:
            return
        text = "" if other is None else (f"float('{other}')" if math.isinf(other) else repr(other))
        load = self.operands.load(value, self.index, text, options)
        self.body.define(value, load, self.operands.inputs[value].name, other)

    def _whole_row(self) -> None:
        other = self._best_other(self.plan.reductions)
        for value in self._loaded(_FULL):
            self._load(value, other if value.dtype.is_floating_point else None)
        for value in self._loaded(Span(False, True)):
            self._load(value, 0.0 if value.dtype.is_floating_point else None)
        self._load_picks()
        wanted = [*(output.value for output in self.plan.graph.outputs if not self.after_rows(output.value))]
        wanted += [total.inputs[0] for total in self.plan.totals]
        self.body.compute(wanted, self._reduce)
        self._store_wide()

    def _reduce(self, value: Value) -> str:
        kind = str(value.settings["kind"])
        text = self.body.clean(value.inputs[0], "inside", IDENTITY[kind])
        return f"tl.{kind}({text}, {self.axis})"

    def _looped_row(self) -> None:
        pairs = {pair.second: pair for pair in self.plan.pairs} if self.form.paired else {}
        passes = self.plan.passes(self.form.paired)
        last = len(passes) - (0 if self.plan.wide_outputs else 1)
        for number, reductions in enumerate(passes):
            self._pass(reductions, pairs, "evict_last" if number < last else "")
        self._load_picks()
        if self.plan.wide_outputs:
            self._final_pass()

    def _pass(self, reductions: list[Value], pairs: dict[Value, Pair], eviction: str) -> None:
        body = self.body
        paired = {pair.first: pair for value, pair in pairs.items() if value in reductions}
        plain = [value for value in reductions if value not in pairs and value not in paired]
        running: dict[Value, str] = {}
        for pair in paired.values():
            body.line(_PAIR_START[pair.kind].replace("SHAPE", "[BLOCK]"))
        for value in plain:
            kind = str(value.settings["kind"])
            name = body.fresh(f"running_{_KIND_WORDS[kind]}")
            running[value] = name
            body.line(f"{name} = {start_text(value, 'BLOCK')}")
        known = set(body.texts)
        end = "last" if self.form.split else "columns"
        body.line(f"for start in range({'first' if self.form.split else '0'}, {end}, BLOCK):")
        body.deeper()
        body.line("column = start + tl.arange(0, BLOCK)")
        body.line(f"inside = column < {end}")
        arguments = [*(value.inputs[0] for value in plain), *(pair.argument for pair in paired.values())]
        other = self._best_other([*plain, *paired])
        hint = f"eviction_policy={eviction!r}" if self.form.keep and eviction else ""
        self._load_needed(arguments, other, hint)
        body.compute(arguments)
        for value in plain:
            kind = str(value.settings["kind"])
            text = body.clean(value.inputs[0], "inside", IDENTITY[kind])
            body.line(combined(kind, running[value], text))
        for pair in paired.values():
            self._pair_step(pair)
        body.deeper(-1)
        body.forget([value for value in body.texts if value not in known])
        for value in plain:
            body.define(value, f"tl.{value.settings['kind']}({running[value]}, axis=0)")
        for pair in paired.values():
            self._pair_end(pair)

    def _pair_step(self, pair: Pair) -> None:
        body = self.body
        if pair.kind == "softmax":
            text = body.clean(pair.argument, "inside", -math.inf)
            body.line(f"scores = {text}")
            body.line("new_largest = tl.maximum(running_largest, tl.max(scores, axis=0))")
            body.line("running_total = running_total * tl.exp(running_largest - new_largest)")
            body.line("running_total += tl.sum(tl.exp(scores - new_largest), axis=0)")
            body.line("running_largest = new_largest")
        else:
            text = body.text(pair.argument)
            body.line("seen += tl.where(inside, 1.0, 0.0)")
            body.line(f"distance = tl.where(inside, {text} - running_mean, 0.0)")
            body.line("running_mean += distance / tl.maximum(seen, 1.0)")
            body.line(f"running_squares += tl.where(inside, distance * ({text} - running_mean), 0.0)")

    def _pair_end(self, pair: Pair) -> None:
        body = self.body
        if pair.kind == "softmax":
            body.know(pair.first, "running_largest")
            body.know(pair.second, "running_total")
            return
        mean = body.define(pair.link, "tl.sum(running_mean * seen, axis=0) / columns", "mean")
        body.line(f"spread = running_mean - {mean}")
        body.define(pair.second, "tl.sum(running_squares + seen * spread * spread, axis=0)", "squares")
        body.know(pair.first, f"({mean} * columns)")

    def _final_pass(self) -> None:
        body = self.body
        row_values = [value for value in self.values if self._is_row_value(value)]
        used = {source for value in self.values if not self._is_row_value(value) for source in value.inputs}
        body.compute([value for value in row_values if value in used and value not in body.texts])
        body.line("for start in range(0, columns, BLOCK):")
        body.deeper()
        body.line("column = start + tl.arange(0, BLOCK)")
        body.line("inside = column < columns")
        outputs = [output.value for output in self._wide_outputs()]
        known = set(body.texts)
        self._load_needed(outputs, None, "eviction_policy='evict_first'" if self.form.keep else "")
        self._store_wide()
        body.deeper(-1)
        body.forget([value for value in list(body.texts) if value not in known])

    def _is_row_value(self, value: Value) -> bool:
        span = self.plan.domain.span(value) if value.shape else Span(False, False)
        return not span.columns and value.op not in ("input", "constant", "count")

    def _load_needed(self, wanted: Sequence[Value], other: float | None, options: str) -> None:
        for value in self._inputs_behind(wanted):
            span = self.plan.domain.span(value)
            if span.columns:
                number = other if span.rows else 0.0
                wanted_other = number if other is not None and value.dtype.is_floating_point else None
                self._load(value, wanted_other, options)

    def _inputs_behind(self, wanted: Sequence[Value]) -> list[Value]:
        found: dict[Value, None] = {}

        def visit(value: Value) -> None:
            if value in self.body.texts or value in found:
                return
            if value.op == "input":
                found[value] = None
            if value.op != "loaded_pick":
                for source in value.inputs:
                    visit(source)

        for value in wanted:
            visit(value)
        return list(found)

    def _load_picks(self) -> None:
        for value in self.values:
            if value.op != "loaded_pick":
                continue
            source, places = value.inputs
            self.body.compute([places])
            operand = self.operands.inputs[source]
            picked = Index(column=f"({self.body.text(places)})")
            mask = f", mask={self.index.row_mask}" if self.index.row_mask else ""
            text = f"tl.load({self.operands.address(operand, picked)}{mask})"
            text += ".to(tl.float32)" if source.dtype in HALVES else ""
            self.body.define(value, text)

    def _wide_outputs(self) -> list[Output]:
        return [output for output in self.plan.graph.outputs if self.plan.domain.span(output.value).columns]

    def _store_wide(self) -> None:
        for place, output in enumerate(self.plan.graph.outputs):
            if self.plan.domain.span(output.value).columns:
                self.body.compute([output.value])
                self.body.line(self.operands.store(place, self.body.short(output.value), self.index))

    def _store_rows(self) -> None:
        body = self.body
        for place, output in enumerate(self.plan.graph.outputs):
            if not self.plan.domain.span(output.value).columns and not self.after_rows(output.value):
                body.compute([output.value])
                line = self.operands.store(place, body.short(output.value), self.index)
                body.line(line.replace("tl.store(", "tl.atomic_add(") if self.form.split else line)
        for place, (total, name) in enumerate(zip(self.plan.totals, self.partials(), strict=True)):
            source, kind = total.inputs[0], str(total.settings["kind"])
            body.compute([source])
            text = body.short(source)
            if self.form.several:
                neutral = _neutral(source, kind)
                text = f"tl.{kind}(tl.where(row < rows, {text}, {neutral}))"
            if self.form.persistent:
                body.line(combined(kind, f"running_{place + 1}", text))
            elif self.form.atomic:
                body.line(f"tl.atomic_add({name}_ptr, {text})")
            else:
                body.line(f"tl.store({name}_ptr + tl.program_id(0), {text})")

    def _store_parts(self) -> None:
        for value, name in zip(self.plan.reductions, self.partials(), strict=True):
            place = "tl.program_id(1) * tl.num_programs(0) + row"
            self.body.line(f"tl.store({name}_ptr + {place}, {self.body.short(value)})")

    def _best_other(self, reductions: Sequence[Value]) -> float:
        """What loads should give outside the row so that the fewest reductions need a mask."""
        best, fewest = 0.0, len(reductions) + 1
        for other in (0.0, -math.inf):
            lanes: dict[Value, float | None] = {}
            for value in self.values:
                if value.op == "input":
                    span = self.plan.domain.span(value)
                    lanes[value] = (other if span.rows else 0.0) if span.columns else None
                elif value.op == "constant":
                    number = value.constant
                    lanes[value] = None if number is None else float(number)
                elif value.op in POINTWISE:
                    lanes[value] = at_masked_lanes(value, [lanes.get(source) for source in value.inputs])
                else:
                    lanes[value] = None
            masked = sum(lanes.get(v.inputs[0]) != IDENTITY[str(v.settings["kind"])] for v in reductions)
            if masked < fewest:
                best, fewest = other, masked
        return best


_KIND_WORDS = {"sum": "total", "max": "largest", "min": "smallest"}
_PAIR_START = {
    "softmax": "running_largest = float('-inf')\nrunning_total = 0.0",
    "moments": "seen = tl.zeros(SHAPE, tl.float32)\nrunning_mean = tl.zeros(SHAPE, tl.float32)\n"
    "running_squares = tl.zeros(SHAPE, tl.float32)",
}


def _neutral(value: Value, kind: str) -> str:
    return "0" if kind == "sum" and not value.dtype.is_floating_point else IDENTITY_TEXT[kind]


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))
