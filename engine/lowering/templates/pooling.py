"""Templates for two-dimensional pooling (one-dimensional as a special case), with a pointwise epilogue."""

from __future__ import annotations

from collections.abc import Mapping

from engine.lowering.structure import Structure
from engine.lowering.structure import Value as Parameter
from engine.lowering.templates import tuning
from engine.lowering.templates.body import Body
from engine.lowering.templates.constructor import Constructor
from engine.lowering.templates.graph import HALVES, Graph, Mismatch, Unrelated, Value, replace_inputs
from engine.lowering.templates.names import HOST_NAMES, Names
from engine.lowering.templates.operands import only_pointwise
from engine.lowering.templates.pointwise import literal
from engine.lowering.templates.summary import fused
from engine.lowering.templates.writing import Kernel, module

_WORDS = {
    "flat": "Every program computes one block of consecutive outputs.",
    "persistent": "A fixed number of programs stride over blocks of consecutive outputs.",
    "tiles": "Every program computes a tile of output rows and columns of one image plane.",
}


class Pooling:
    """One pooling operation with what follows it, and the kernels that compute it."""

    def __init__(self, graph: Graph, constructor: Constructor, target: tuning.Target) -> None:
        """Matches the graph.

        Raises:
            Mismatch: it is not one pooling of an input followed by pointwise operations on the result alone.
        """
        pools = [value for value in graph.values() if value.op == "pool"]
        if not pools:
            raise Unrelated("It has no pooling.")
        if len(pools) > 1 or len(graph.outputs) > 1:
            raise Mismatch("It has several poolings or outputs.")
        self.pool = pools[0]
        self.source = self.pool.inputs[0]
        if self.source.op != "input":
            raise Mismatch("What it pools is computed first.")
        self.leaf = Value("pooled", (), self.pool.shape, self.pool.dtype, "pooled")
        self.graph = graph.rewritten(
            lambda value, inputs: self.leaf if value.op == "pool" else replace_inputs(value, inputs)
        )
        self.output = self.graph.outputs[0]
        only_pointwise(self.graph.values(), "pooled")
        if any(value.op == "input" for value in self.graph.values()):
            raise Mismatch("What follows its pooling has further operands.")
        if self.output.value.shape != self.pool.shape:
            raise Mismatch("An output has another shape than its pooling.")
        self.squeezed = self.output.shape != self.pool.shape
        if self.squeezed and (
            self.pool.shape[-2] != 1 or self.output.shape != (*self.pool.shape[:-2], self.pool.shape[-1])
        ):
            raise Mismatch("The result of its pooling is reshaped.")
        self.constructor, self.target = constructor, target

    def structures(self) -> list[Structure]:
        """All ways of writing it."""
        warps, blocks = (1, 2, 4, 8, 16), (128, 256, 512, 1024, 2048)
        width = min(tuning.next_power_of_two(self.pool.shape[-1]), 256)
        tall = max(1, min(8, 1024 // width))
        return [
            Structure(
                "pooling/flat",
                "each program computes one block of consecutive outputs",
                {"BLOCK": 512, "num_warps": 4},
                {"BLOCK": blocks, "num_warps": warps},
                lambda chosen: self._render(chosen, "flat"),
            ),
            Structure(
                "pooling/tiles",
                "each program computes a tile of output rows and columns of one plane",
                {"ROWS": tall, "BLOCK": width, "num_warps": 4},
                {"ROWS": (1, 2, 4, 8, 16, 32), "BLOCK": (16, 32, 64, 128, 256, 512), "num_warps": warps},
                lambda chosen: self._render(chosen, "tiles"),
            ),
            Structure(
                "pooling/persistent",
                "a fixed number of programs stride over blocks of consecutive outputs",
                {"BLOCK": 512, "PROGRAMS": self.target.processors * 8, "num_warps": 4},
                {"BLOCK": blocks, "PROGRAMS": self.target.program_counts(), "num_warps": warps},
                lambda chosen: self._render(chosen, "persistent"),
            ),
        ]

    def _render(self, chosen: Mapping[str, Parameter], form: str) -> str:
        rows, block, warps = int(chosen.get("ROWS", 1)), int(chosen["BLOCK"]), int(chosen["num_warps"])
        tuning.check_lanes(rows * block, warps)
        names = Names([*self.graph.arguments, *HOST_NAMES])
        host, name = self._source(names)
        output = names.fresh(self.output.name)
        body = Body(Names(["start", "lane", "inside", "best", "taken", "row", "column"]), self._scope())
        if form == "tiles":
            self._tile(body, name)
        else:
            self._blocks(body, name, form)
        store = (
            "plane * out_height * out_width + out_row * out_width + out_column" if form == "tiles" else "start + lane"
        )
        body.compute([self.output.value])
        body.line(f"tl.store({output}_ptr + {store}, {body.short(self.output.value)}, mask=inside)")
        sizes = ["height", "width", "out_height", "out_width"]
        arguments = {f"{name}_ptr": name, f"{output}_ptr": output, **{size: size for size in sizes}}
        if form != "tiles":
            arguments["count"] = "count"
        grids = {
            "flat": f"(triton.cdiv(count, {block}),)",
            "persistent": f"(min({chosen.get('PROGRAMS')}, triton.cdiv(count, {block})),)",
            "tiles": f"(planes * triton.cdiv(out_height, {rows}), triton.cdiv(out_width, {block}))",
        }
        meta = {"ROWS": str(rows), "BLOCK": str(block)} if form == "tiles" else {"BLOCK": str(block)}
        comment = f"Fuses {self.pool.settings['kind']} pooling{self._tail()}."
        kernel = Kernel("pool_windows", comment, grids[form], arguments, meta, {"num_warps": warps}, body.lines)
        host += [
            f"height, width = {name}.shape[-2:]",
            f"out_height = {self._out_size('height', 0)}",
            f"out_width = {self._out_size('width', 1)}",
            f"{output} = torch.empty((*{name}.shape[:-2], out_height, out_width), device={name}.device, "
            f"dtype={name}.dtype)",
            f"planes = {name}.numel() // (height * width)" if form == "tiles" else f"count = {output}.numel()",
            kernel.launch(),
        ]
        result = f"{output}.squeeze(-2)" if self.squeezed else output
        return module(self.graph, self.constructor, _WORDS[form], [kernel], host, [result])

    def _tail(self) -> str:
        rest = [value for value in self.graph.values() if value.op not in ("pooled", "constant")]
        return f", then {fused(rest)}" if rest else ""

    def _source(self, names: Names) -> tuple[list[str], str]:
        text = self.source.text("text")
        lines = [
            f"{argument} = {argument}.contiguous()"
            for argument in self.graph.arguments
            if text == argument or text.startswith(f"{argument}.")
        ]
        if text in self.graph.arguments:
            return lines, text
        name = names.fresh(self.source.label or "image")
        contiguous = "" if self.source.text("layout") == "dense" else ".contiguous()"
        return [*lines, f"{name} = {text}{contiguous}"], name

    def _scope(self) -> dict[Value, str]:
        found = [value for value in self.graph.values() if value.op == "constant"]
        return {value: literal(value.constant) for value in found if value.constant is not None}

    def _out_size(self, size: str, axis: int) -> str:
        kernel, stride, padding, dilation = (
            self.pool.numbers(name)[axis] for name in ("kernel", "stride", "padding", "dilation")
        )
        reach = dilation * (kernel - 1) + 1 - 2 * padding
        shrunk = f"{size} - {reach}" if reach > 0 else f"{size} + {-reach}" if reach < 0 else size
        return f"({shrunk}) // {stride} + 1"

    def _blocks(self, body: Body, name: str, form: str) -> None:
        body.line("lane = tl.arange(0, BLOCK)")
        if form == "flat":
            body.line("start = tl.program_id(0).to(tl.int64) * BLOCK")
        else:
            body.line("for block in range(tl.program_id(0), tl.cdiv(count, BLOCK), tl.num_programs(0)):")
            body.deeper()
            body.line("start = tl.cast(block, tl.int64) * BLOCK")
        body.line("inside = lane < count - start")
        body.line("first_plane = start // (out_height * out_width)")
        body.line("place = (start - first_plane * out_height * out_width).to(tl.int32) + lane")
        body.line("plane = first_plane + place // (out_height * out_width)")
        body.line("out_row = place // out_width % out_height")
        body.line("out_column = place % out_width")
        self._windows(body, name, "BLOCK")

    def _tile(self, body: Body, name: str) -> None:
        body.line("tiles_down = tl.cdiv(out_height, ROWS)")
        body.line("plane = (tl.program_id(0) // tiles_down).to(tl.int64)")
        body.line("out_row = tl.program_id(0) % tiles_down * ROWS + tl.arange(0, ROWS)[:, None]")
        body.line("out_column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]")
        body.line("inside = (out_row < out_height) & (out_column < out_width)")
        self._windows(body, name, "ROWS, BLOCK")

    def _windows(self, body: Body, name: str, shape: str) -> None:
        kind = str(self.pool.settings["kind"])
        kernel, stride, padding, dilation = (
            self.pool.numbers(setting) for setting in ("kernel", "stride", "padding", "dilation")
        )
        load = ".to(tl.float32)" if self.source.dtype in HALVES else ""
        body.line(f"plane_ptr = {name}_ptr + plane * height * width")
        if kind == "max":
            body.line(f"best = tl.full([{shape}], float('-inf'), tl.float32)")
        else:
            body.line(f"best = tl.zeros([{shape}], tl.float32)")
        counted = kind == "avg" and not self.pool.settings["counts_padding"] and any(padding)
        if counted:
            body.line(f"taken = tl.zeros([{shape}], tl.float32)")
        body.line(f"for down in tl.static_range({kernel[0]}):")
        body.deeper()
        body.line(f"for across in tl.static_range({kernel[1]}):")
        body.deeper()
        body.line(f"row = {_position('out_row', stride[0], padding[0], 'down', dilation[0])}")
        body.line(f"column = {_position('out_column', stride[1], padding[1], 'across', dilation[1])}")
        body.line("valid = inside & (row >= 0) & (row < height) & (column >= 0) & (column < width)")
        other = "float('-inf')" if kind == "max" else "0.0"
        body.line(f"value = tl.load(plane_ptr + row * width + column, mask=valid, other={other}){load}")
        body.line("best = tl.maximum(best, value)" if kind == "max" else "best += value")
        if counted:
            body.line("taken += tl.where(valid, 1.0, 0.0)")
        body.deeper(-2)
        divisor = "taken" if counted else str(float(kernel[0] * kernel[1]))
        body.know(self.leaf, "best" if kind == "max" else f"(best / {divisor})")


def _position(out: str, stride: int, padding: int, step: str, dilation: int) -> str:
    text = out if stride == 1 else f"{out} * {stride}"
    text += f" - {padding}" if padding else ""
    return f"{text} + {step}" if dilation == 1 else f"{text} + {step} * {dilation}"
