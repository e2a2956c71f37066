"""Matches graphs whose reductions run along rows, and orders their work into passes.

A pass reads a row once. A reduction belongs to the first pass in which its argument is known; values
made from its result belong to later passes, unless both can be kept up to date together (`pairs`).
Reductions over everything ("totals") come after the rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from engine.lowering.templates.domain import Domain, lay_out
from engine.lowering.templates.graph import (
    FLOATS,
    Graph,
    Mismatch,
    Unrelated,
    Value,
    ordered,
    reduced,
    replace_inputs,
    reshape,
)
from engine.lowering.templates.operands import only_pointwise
from engine.lowering.templates.operations import whole_softmax
from engine.lowering.templates.pointwise import POINTWISE


@dataclass(frozen=True, slots=True)
class Pair:
    """Two reductions over one row that are kept up to date together.

    `softmax`: the largest value and the sum of exponentials relative to it. `moments`: the sum and the
    sum of squared distances from the mean (Welford's method).
    """

    kind: str
    first: Value
    second: Value
    argument: Value
    link: Value


@dataclass(slots=True)
class RowPlan:
    """A graph laid over rows, its reductions by pass, and what follows all rows."""

    graph: Graph
    domain: Domain
    spoken: Graph | None = None
    reductions: list[Value] = field(default_factory=list)
    totals: list[Value] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)

    def passes(self, paired: bool) -> list[list[Value]]:
        """The reductions along rows, by the pass that completes them."""
        level: dict[Value, int] = {}
        second = {pair.second: pair for pair in self.pairs} if paired else {}
        for value in self.graph.values():
            if value in self.totals:
                continue
            if value in second:
                level[value] = level[second[value].argument] + 1
            elif value in self.reductions:
                level[value] = level[value.inputs[0]] + 1
            else:
                level[value] = max((level.get(source, 0) for source in value.inputs), default=0)
        count = max((level[value] for value in self.reductions), default=0)
        return [[value for value in self.reductions if level[value] == number + 1] for number in range(count)]

    @property
    def wide_outputs(self) -> bool:
        """Whether an output covers whole rows, so that a last pass must write it."""
        return any(self.domain.span(output.value).columns for output in self.graph.outputs)


def plan_rows(graph: Graph) -> RowPlan:
    """Matches a graph.

    Raises:
        Mismatch: it does not reduce along rows, or does something else besides.
    """
    spoken = graph
    graph = graph.rewritten(_spell_out).rewritten(_move_picks).without_duplicates()
    values = graph.values()
    only_pointwise(values, "reduce", "reshape", "count", "loaded_pick")
    reduces = [value for value in values if value.op == "reduce"]
    if not reduces:
        raise Unrelated("It has no reduction.")
    shape = max((value.inputs[0].shape for value in reduces), key=math.prod)
    trailing = _trailing(reduces, shape)
    domain = lay_out(graph, shape, trailing)
    plan = RowPlan(graph, domain)
    if domain.rows == 1:
        raise Unrelated("It reduces everything at once, there are no rows.")
    for value in reduces:
        span, after = domain.span(value.inputs[0]), domain.span(value)
        whole = span.rows or span.columns
        if whole and not after.rows and not after.columns:
            plan.totals.append(value)
        elif span.rows and span.columns and after.rows and not after.columns:
            plan.reductions.append(value)
        else:
            raise Unrelated("It reduces along another axis than the last ones.")
        if value.settings["kind"] != "sum" and value.dtype not in FLOATS:
            raise Mismatch("It has a maximum of whole numbers.")
    plan = _totals_by_row(plan)
    for output in plan.graph.outputs:
        span = plan.domain.span(output.value)
        if span.columns and not span.rows:
            raise Mismatch("An output covers columns only.")
        if (span.rows or span.columns) and set(ordered([output.value])).intersection(plan.totals):
            raise Mismatch("A result for every row needs a reduction over everything first.")
    plan.pairs = _pairs(plan)
    plan.spoken = spoken
    return plan


def _trailing(reduces: list[Value], shape: tuple[int, ...]) -> int:
    counts: set[int] = set()
    for value in reduces:
        source, axes = value.inputs[0], value.numbers("axes")
        if len(source.shape) == len(shape) and axes == tuple(range(len(shape) - len(axes), len(shape))):
            if len(axes) < len(shape):
                counts.add(len(axes))
        elif math.prod(value.shape) != 1:
            raise Unrelated("It reduces along another axis than the last ones.")
    if len(counts) > 1:
        raise Mismatch("Its reductions run along different axes.")
    return counts.pop() if counts else 1


def _spell_out(value: Value, inputs: tuple[Value, ...]) -> Value:
    """Softmaxes as their parts."""
    if value.op in ("softmax", "log_softmax"):
        return whole_softmax(value.op, inputs[0], len(value.shape) - 1, value.label)
    return replace_inputs(value, inputs)


def _move_picks(value: Value, inputs: tuple[Value, ...]) -> Value:
    """Gathers moved in front of pointwise operations, down to the loads."""
    if value.op != "pick":
        return replace_inputs(value, inputs)
    return _picked(inputs[0], inputs[1], {})


def _picked(value: Value, places: Value, done: dict[Value, Value]) -> Value:
    if value not in done:
        kept = (*value.shape[:-1], 1)
        if not value.shape or value.shape[-1] == 1:
            done[value] = value
        elif value.op == "input":
            if value.shape[:-1] != places.shape[:-1]:
                raise Mismatch("It gathers from a broadcast operand.")
            done[value] = Value("loaded_pick", (value, places), kept, value.dtype, f"{value.label}_picked")
        elif value.op in POINTWISE:
            inputs = tuple(_picked(source, places, done) for source in value.inputs)
            done[value] = Value(value.op, inputs, kept, value.dtype, "", value.settings)
        else:
            raise Mismatch("It gathers from the result of something that is not pointwise.")
    return done[value]


def _totals_by_row(plan: RowPlan) -> RowPlan:
    """Splits totals of whole rows into a reduction along the row and a total of those."""
    split = [value for value in plan.totals if plan.domain.span(value.inputs[0]).columns]
    if not split:
        return plan

    def rule(value: Value, inputs: tuple[Value, ...]) -> Value:
        if value not in split:
            return replace_inputs(value, inputs)
        rank = len(inputs[0].shape)
        axes = range(rank - plan.domain.trailing, rank)
        kind = str(value.settings["kind"])
        row = reduced(kind, inputs[0], list(axes), True)
        return reshape(reduced(kind, row, range(rank), False, value.label), value.shape)

    return plan_rows(plan.graph.rewritten(rule))


def _pairs(plan: RowPlan) -> list[Pair]:
    pairs: list[Pair] = []
    for value in plan.reductions:
        if value.settings["kind"] != "sum":
            continue
        source = value.inputs[0]
        if source.op == "exp" and source.inputs[0].op == "sub":
            argument, shift = source.inputs[0].inputs
            largest = _finite_part(shift)
            if largest in plan.reductions and largest.settings["kind"] == "max" and largest.inputs[0] is argument:
                pairs.append(Pair("softmax", largest, value, argument, shift))
        elif source.op == "square" and source.inputs[0].op == "sub":
            argument, mean = source.inputs[0].inputs
            if mean.op == "div" and mean.inputs[1].op == "count" and not mean.inputs[1].settings["less"]:
                total = mean.inputs[0]
                if total in plan.reductions and total.inputs[0] is argument:
                    pairs.append(Pair("moments", total, value, argument, mean))
    return pairs


def _finite_part(value: Value) -> Value:
    """The maximum inside `0 if |maximum| is infinite else maximum`, as logsumexp protects itself."""
    if value.op == "where" and value.inputs[0].op == "eq" and value.inputs[0].inputs[0].op == "abs":
        return value.inputs[2]
    return value
