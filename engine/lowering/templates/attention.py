"""Templates for attention: softmax of scaled scores times values, without storing the scores."""

from __future__ import annotations

import math
from collections.abc import Mapping

from engine.lowering.structure import Structure
from engine.lowering.structure import Value as Parameter
from engine.lowering.templates import tuning
from engine.lowering.templates.body import Body
from engine.lowering.templates.constructor import Constructor
from engine.lowering.templates.domain import Domain
from engine.lowering.templates.factors import PRECISIONS, Factor, factor
from engine.lowering.templates.graph import HALVES, Graph, Mismatch, Unrelated, Value, constant, make
from engine.lowering.templates.operands import Operands, only_pointwise
from engine.lowering.templates.pointwise import literal
from engine.lowering.templates.writing import Kernel, module

_WIDEST = 256


class Attention:
    """One attention, and the kernels that compute it."""

    def __init__(self, graph: Graph, constructor: Constructor, target: tuning.Target) -> None:
        """Matches the graph.

        Raises:
            Mismatch: it is not attention over inputs, or has a mask or operations after it.
        """
        if len(graph.outputs) != 1:
            raise Unrelated("It has several outputs.")
        self.graph, self.constructor, self.target = graph, constructor, target
        last = graph.outputs[0].value
        self.causal = False
        self.score = Value("score", (), (), last.dtype, "scores")
        if last.op == "attention":
            self._fused_call(last)
        elif last.op == "matmul" and last.inputs[0].op == "softmax":
            self._spelled_out(last)
        else:
            raise Unrelated("It is no attention.")
        self.width, self.value_width = self.query.shape[-1], self.value.shape[-1]
        self.queries, self.keys = self.query.shape[-2], self.value.shape[-2]
        self.heads = len(self.query.shape) > 2
        if max(self.width, self.value_width) > _WIDEST:
            raise Mismatch(f"A head wider than {_WIDEST} does not fit the registers.")
        for part in (self.query, self.key, self.value):
            if part.op != "input" or part.shape[:-2] != self.query.shape[:-2]:
                raise Mismatch("Its queries, keys or values are computed first, or are shared between heads.")
        self.half = self.query.dtype in HALVES

    def _fused_call(self, call: Value) -> None:
        if len(call.inputs) > 3:
            raise Mismatch("No template knows attention with a mask.")
        self.query, self.key, self.value = call.inputs
        self.key_rows = True
        self.causal = bool(call.settings["causal"])
        scale = call.settings["scale"]
        width = self.query.shape[-1]
        factor_ = scale if isinstance(scale, Value) else constant(width**-0.5, "width ** -0.5")
        self.scaled = make("mul", self.score, factor_)

    def _spelled_out(self, product: Value) -> None:
        softmax, self.value = product.inputs
        scores = [value for value in _behind(softmax.inputs[0]) if value.op == "matmul"]
        if len(scores) != 1:
            raise Mismatch("Its scores are no single matrix product.")
        self.query, self.key = scores[0].inputs
        self.key_rows = False
        replaced: dict[Value, Value] = {scores[0]: self.score}
        for value in _behind(softmax.inputs[0], stop=scores[0]):
            if value is not scores[0]:
                inputs = tuple(replaced[source] for source in value.inputs)
                if value.op == "input":
                    raise Mismatch("No template knows attention with a mask.")
                replaced[value] = Value(value.op, inputs, (), value.dtype, "", value.settings)
        self.scaled = replaced[softmax.inputs[0]]
        only_pointwise([value for value in replaced.values() if value is not self.score])

    def structures(self) -> list[Structure]:
        """All ways of writing it, each in each precision that changes something."""
        found: list[Structure] = []
        for precision in ("ieee",) if self.half else PRECISIONS:
            suffix = "" if precision == "ieee" else f"/{precision}"
            note = "" if precision == "ieee" else f", factors rounded to {precision}"
            base, choices = self._tiles(precision)
            found.append(
                Structure(
                    f"attention/online{suffix}",
                    f"each program keeps some queries and walks over all keys with a running softmax{note}",
                    base,
                    choices,
                    lambda chosen, precision=precision: self._render(chosen, precision, False),  # type: ignore[misc]
                )
            )
            if not self.causal:
                found.append(
                    Structure(
                        f"attention/split_keys{suffix}",
                        f"several programs share the keys of some queries; a second kernel joins their parts{note}",
                        {**base, "SPLIT": 2},
                        {**choices, "SPLIT": (2, 4, 8)},
                        lambda chosen, precision=precision: self._render(chosen, precision, True),  # type: ignore[misc]
                    )
                )
        return found

    def _tiles(self, precision: str) -> tuple[dict[str, Parameter], dict[str, tuple[Parameter, ...]]]:
        wide = tuning.next_power_of_two(max(self.width, self.value_width))
        exact = precision == "ieee" and not self.half
        block_m, block_n, warps, stages = (64, 32, 8, 2) if exact else (128, 64, 8, 2)
        if math.prod(self.query.shape[:-1]) < 128 * self.target.processors:
            block_m = 64
        if wide > 64 and not self.half:
            block_m, block_n = 64, 32
        return (
            {"BLOCK_M": block_m, "BLOCK_N": block_n, "num_warps": warps, "num_stages": stages},
            {
                "BLOCK_M": (16, 32, 64, 128),
                "BLOCK_N": (16, 32, 64, 128),
                "num_warps": (1, 2, 4, 8),
                "num_stages": (1, 2, 3, 4),
            },
        )

    def _check(self, chosen: Mapping[str, Parameter]) -> None:
        block_m, block_n = int(chosen["BLOCK_M"]), int(chosen["BLOCK_N"])
        threads, stages = 32 * int(chosen["num_warps"]), int(chosen["num_stages"])
        wide = max(16, tuning.next_power_of_two(max(self.width, self.value_width)))
        bytes_each = self.query.dtype.itemsize
        shared = (2 * block_n * stages + block_m) * wide * bytes_each + block_m * block_n * bytes_each
        if shared > self.target.shared_bytes:
            raise ValueError(f"The tiles need {shared // 1024} KiB of shared memory; use smaller ones or fewer stages.")
        held = (block_m * wide * 2 + block_m * block_n * 2) // threads
        if held > 256:
            raise ValueError(f"Each thread would hold about {held} numbers, more than its registers; use more warps.")
        if block_m * block_n < threads:
            raise ValueError("The tile of scores leaves threads idle; use fewer warps.")

    def _render(self, chosen: Mapping[str, Parameter], precision: str, split: bool) -> str:
        self._check(chosen)
        output = self.graph.outputs[0]
        empty = Graph((), "tensor", self.graph.arguments)
        operands = Operands(empty, Domain((), 1, {}, ()))
        query = factor(operands, self.query, "query")
        key = query if self.key is self.query else factor(operands, self.key, "key")
        value = next(
            (made for part, made in ((self.query, query), (self.key, key)) if part is self.value), None
        ) or factor(operands, self.value, "value")
        name = operands.names.fresh(output.name if output.name not in ("product", "value") else "output")
        key_height = key.height if self.key_rows else key.width
        host = [*operands.host, f"queries, width = {query.height}, {query.width}"]
        host.append(f"keys, value_width = {key_height}, {value.width}")
        if output.sizes is None:
            raise Mismatch("A size of the result is no function of the inputs' sizes that is visible.")
        sizes = ", ".join(output.sizes)
        host.append(f"{name} = torch.empty(({sizes}), device={query.host}.device, dtype={query.host}.dtype)")
        heads = f"{query.host}.numel() // (queries * width)" if self.heads else "1"
        host.append(f"heads = {heads}")
        kernel = self._kernel(chosen, precision, split, (query, key, value), name)
        kernels = [kernel]
        if split:
            parts = chosen["SPLIT"]
            place = f"device={query.host}.device, dtype=torch.float32"
            host += [
                f"largest = torch.empty(({parts}, heads, queries), {place})",
                "totals = torch.empty_like(largest)",
                f"sums = torch.empty(({parts}, heads, queries, value_width), {place})",
            ]
            kernels.append(self._join(chosen, name))
        host += [made.launch() for made in kernels]
        idea = (
            "Several programs share the keys of every query; a second kernel joins their parts."
            if split
            else "Every program keeps some queries and walks over all keys with a running softmax."
        )
        return module(self.graph, self.constructor, idea, kernels, host, [name])

    def _kernel(
        self,
        chosen: Mapping[str, Parameter],
        precision: str,
        split: bool,
        parts: tuple[Factor, Factor, Factor],
        output: str,
    ) -> Kernel:
        query, key, value = parts
        operands = Operands(Graph((), "tensor", self.graph.arguments), Domain((), 1, {}, ()))
        names = operands.kernel_names()
        for taken in ("query", "key", "value", "scores", "weights", "largest", "totals", "sums", "width"):
            names.fresh(taken)
        body = Body(names, {})
        numbers: dict[str, str] = {}
        for found in _behind(self.scaled):
            if found.op == "constant":
                number = found.constant
                assert number is not None
                text = found.text("text")
                divides = any(user.op == "div" and user.inputs[1] is found for user in _behind(self.scaled))
                wanted = names.fresh("divisor" if divides else "scale")
                body.know(found, wanted if text else literal(number))
                if text:
                    numbers[wanted] = text
        option = "" if self.half else f", input_precision={precision!r}"
        load = ""
        body.line("head = tl.program_id(1).to(tl.int64)")
        body.line("row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)")
        body.line("place = tl.arange(0, WIDTH)")
        body.line("value_place = tl.arange(0, VALUE_WIDTH)")
        query_place = query.place("row[:, None]", "place[None, :]", "queries", "width")
        body.line(f"query_ptrs = {query.pointer} + head * queries * width + {query_place}")
        body.line("query_mask = (row[:, None] < queries) & (place[None, :] < width)")
        body.line(f"query = tl.load(query_ptrs, mask=query_mask, other=0.0){load}")
        body.line("largest = tl.full([BLOCK_M], float('-inf'), tl.float32)")
        body.line("total = tl.zeros([BLOCK_M], tl.float32)")
        body.line("sums = tl.zeros([BLOCK_M, VALUE_WIDTH], tl.float32)")
        if split:
            body.line("chunk = tl.cdiv(tl.cdiv(keys, BLOCK_N), SPLIT) * BLOCK_N")
            body.line("first = tl.program_id(2) * chunk")
            body.line("for start in range(first, tl.minimum(first + chunk, keys), BLOCK_N):")
        elif self.causal:
            body.line("for start in range(0, tl.minimum(keys, (tl.program_id(0) + 1) * BLOCK_M), BLOCK_N):")
        else:
            body.line("for start in range(0, keys, BLOCK_N):")
        body.deeper()
        body.line("column = start + tl.arange(0, BLOCK_N)")
        if self.key_rows:
            key_place = key.place("column[None, :]", "place[:, None]", "keys", "width")
        else:
            key_place = key.place("place[:, None]", "column[None, :]", "width", "keys")
        body.line("key_mask = (place[:, None] < width) & (column[None, :] < keys)")
        body.line(f"key = tl.load({key.pointer} + head * keys * width + {key_place}, mask=key_mask, other=0.0)")
        body.line(f"scores = tl.dot(query, key{option})")
        body.know(self.score, "scores")
        body.compute([self.scaled])
        allowed = "column[None, :] < keys"
        if self.causal:
            allowed = "(column[None, :] < keys) & (row[:, None] >= column[None, :])"
        body.line(f"scores = tl.where({allowed}, {body.text(self.scaled)}, float('-inf'))")
        body.line("new_largest = tl.maximum(largest, tl.max(scores, axis=1))")
        body.line("weights = tl.exp(scores - new_largest[:, None])")
        body.line("correction = tl.exp(largest - new_largest)")
        body.line("total = total * correction + tl.sum(weights, axis=1)")
        value_place = value.place("column[:, None]", "value_place[None, :]", "keys", "value_width")
        body.line("value_mask = (column[:, None] < keys) & (value_place[None, :] < value_width)")
        pointer = f"{value.pointer} + head * keys * value_width + {value_place}"
        body.line(f"value = tl.load({pointer}, mask=value_mask, other=0.0)")
        body.line(f"sums = tl.dot(weights.to(value.dtype), value, sums * correction[:, None]{option})")
        body.line("largest = new_largest")
        body.deeper(-1)
        body.line("inside = (row[:, None] < queries) & (value_place[None, :] < value_width)")
        if split:
            body.line("part = (tl.program_id(2) * tl.num_programs(1) + head) * queries + row")
            body.line("tl.store(largest_ptr + part, largest, mask=row < queries)")
            body.line("tl.store(totals_ptr + part, total, mask=row < queries)")
            body.line("tl.store(sums_ptr + part[:, None] * value_width + value_place[None, :], sums, mask=inside)")
            outputs = {f"{name}_ptr": name for name in ("largest", "totals", "sums")}
        else:
            body.line("out_place = row[:, None] * value_width + value_place[None, :]")
            body.line(
                f"tl.store({output}_ptr + head * queries * value_width + out_place, sums / total[:, None], mask=inside)"
            )
            outputs = {f"{output}_ptr": output}
        arguments = {part.pointer: part.host for part in parts} | outputs
        arguments |= {size: size for size in ("queries", "keys", "width", "value_width")} | numbers
        meta = {name: str(chosen[name]) for name in ("BLOCK_M", "BLOCK_N")}
        meta["WIDTH"] = "max(16, triton.next_power_of_2(width))"
        meta["VALUE_WIDTH"] = "max(16, triton.next_power_of_2(value_width))"
        grid = f"(triton.cdiv(queries, {chosen['BLOCK_M']}), heads)"
        if split:
            meta["SPLIT"] = str(chosen["SPLIT"])
            grid = f"(triton.cdiv(queries, {chosen['BLOCK_M']}), heads, {chosen['SPLIT']})"
        options = {name: chosen[name] for name in ("num_warps", "num_stages")}
        masked = "causal mask, " if self.causal else ""
        comment = f"Fuses scores, scale, {masked}softmax and the weighted sum of values; no score reaches memory."
        return Kernel("attend", comment, grid, arguments, meta, options, body.lines)

    def _join(self, chosen: Mapping[str, Parameter], output: str) -> Kernel:
        lines = """\
row = tl.program_id(0).to(tl.int64)
place = tl.arange(0, VALUE_WIDTH)
part = tl.arange(0, SPLIT)
largest = tl.load(largest_ptr + part * rows + row)
weight = tl.exp(largest - tl.max(largest, axis=0))
total = tl.sum(tl.load(totals_ptr + part * rows + row) * weight, axis=0)
inside = place < value_width
sums_ptrs = sums_ptr + (part[:, None] * rows + row) * value_width + place[None, :]
sums = tl.load(sums_ptrs, mask=inside[None, :], other=0.0)
joined = tl.sum(sums * weight[:, None], axis=0) / total
tl.store(OUTPUT_ptr + row * value_width + place, joined, mask=inside)""".replace("OUTPUT", output).split("\n")
        arguments = {f"{name}_ptr": name for name in ("largest", "totals", "sums", output)}
        arguments |= {"rows": "heads * queries", "value_width": "value_width"}
        meta = {"VALUE_WIDTH": "triton.next_power_of_2(value_width)", "SPLIT": str(chosen["SPLIT"])}
        comment = "Joins the parts that the programs of the first kernel computed from their share of the keys."
        return Kernel("join_parts", comment, "(heads * queries,)", arguments, meta, {"num_warps": 1}, lines)


def _behind(value: Value, stop: Value | None = None) -> list[Value]:
    """The value and all that it depends on, inputs first, not looking behind `stop`."""
    done: dict[Value, None] = {}

    def visit(current: Value) -> None:
        if current in done:
            return
        if current is not stop:
            for source in current.inputs:
                visit(source)
        done[current] = None

    visit(value)
    return list(done)
