"""Templates for one matrix product, batched or not, followed by pointwise operations."""

from __future__ import annotations

from collections.abc import Mapping

from engine.lowering.structure import Structure
from engine.lowering.structure import Value as Parameter
from engine.lowering.templates import tuning
from engine.lowering.templates.body import Body
from engine.lowering.templates.constructor import Constructor
from engine.lowering.templates.domain import lay_out
from engine.lowering.templates.factors import PRECISIONS, Factor, factor
from engine.lowering.templates.graph import HALVES, Graph, Mismatch, Unrelated, Value, replace_inputs
from engine.lowering.templates.operands import Index, Operands, inputs_of, only_pointwise
from engine.lowering.templates.summary import fused
from engine.lowering.templates.writing import Kernel, module

_MOST_ACROSS = 65535
_TILE_ORDER = """\
# Programs next to each other share tiles of the right factor, which then stay in the cache.
tiles_down, tiles_across = tl.cdiv(rows, BLOCK_M), tl.cdiv(columns, BLOCK_N)
group = tile // (GROUP * tiles_across)
height = tl.minimum(tiles_down - group * GROUP, GROUP)
tile_row = group * GROUP + tile % (GROUP * tiles_across) % height
tile_column = tile % (GROUP * tiles_across) // height"""


class Matmul:
    """A matrix product with an epilogue, and the kernels that compute it."""

    def __init__(self, graph: Graph, constructor: Constructor, target: tuning.Target) -> None:
        """Matches the graph.

        Raises:
            Mismatch: it has no product, or several, or something that is not pointwise around it.
        """
        products = [value for value in graph.values() if value.op == "matmul"]
        if not products:
            raise Unrelated("It has no matrix product.")
        if len(products) > 1:
            raise Mismatch("It has several matrix products.")
        self.product = products[0]
        self.left, self.right = self.product.inputs
        if self.left.op != "input" or self.right.op != "input":
            raise Mismatch("A factor of its matrix product is computed first.")
        self.leaf = Value("product", (), self.product.shape, self.product.dtype, "product")
        self.spoken = graph
        self.graph = graph.rewritten(
            lambda value, inputs: self.leaf if value.op == "matmul" else replace_inputs(value, inputs)
        )
        self.rest = self.graph.values()
        only_pointwise(self.rest, "product")
        if any(output.value.shape != self.product.shape for output in graph.outputs):
            raise Mismatch("An output has another shape than its matrix product.")
        self.domain = lay_out(self.graph, self.product.shape, 1, sizes_known=True)
        self.constructor, self.target = constructor, target
        self.half = self.left.dtype in HALVES
        self.batched = len(self.product.shape) == 3
        if self.batched and self.product.shape[0] > _MOST_ACROSS:
            raise Mismatch(f"It multiplies more than {_MOST_ACROSS} matrices, more than a grid can be wide.")

    def structures(self) -> list[Structure]:
        """All ways of writing it, each in each precision that changes something."""
        found: list[Structure] = []
        for precision in ("ieee",) if self.half else PRECISIONS:
            found += self._of_precision(precision)
        return found

    def _of_precision(self, precision: str) -> list[Structure]:
        suffix = "" if precision == "ieee" else f"/{precision}"
        note = "" if precision == "ieee" else f", factors rounded to {precision}"
        rows, columns = self.product.shape[-2:]
        base, choices = self._tiles(precision, rows, columns)
        tiles = -(-rows // int(base["BLOCK_M"])) * -(-columns // int(base["BLOCK_N"]))
        split = max(2, min(16, tuning.next_power_of_two(2 * self.target.processors // max(tiles, 1)) // 2))
        programs = self.target.program_counts()
        found = [
            Structure(
                f"matmul/tiled{suffix}",
                f"each program computes one tile of the product and its epilogue{note}",
                base,
                choices,
                lambda chosen: self._render(chosen, "tiled", precision),
            )
        ]
        if not self.batched:
            found += [
                Structure(
                    f"matmul/persistent{suffix}",
                    f"a fixed number of programs stride over the tiles of the product{note}",
                    {**base, "PROGRAMS": self.target.processors},
                    {**choices, "PROGRAMS": programs[:3]},
                    lambda chosen: self._render(chosen, "persistent", precision),
                ),
                Structure(
                    f"matmul/split_k{suffix}",
                    f"several programs share the sum of each tile; a second kernel adds their parts{note}",
                    {**base, "SPLIT": split},
                    {**choices, "SPLIT": (2, 4, 8, 16)},
                    lambda chosen: self._render(chosen, "split_k", precision),
                ),
            ]
        return found

    def _tiles(
        self, precision: str, rows: int, columns: int
    ) -> tuple[dict[str, Parameter], dict[str, tuple[Parameter, ...]]]:
        """Default tiles and the choices around them."""
        tall, wide = tuning.next_power_of_two(rows), tuning.next_power_of_two(columns)
        if precision == "ieee" and not self.half:
            block_m, block_n, block_k, warps, stages = 128, 128, 16, 8, 3
        elif precision == "tf32x3":
            block_m, block_n, block_k, warps, stages = 128, 128, 32, 8, 3
        else:
            block_m, block_n, block_k, warps, stages = 128, 128, 64 if self.half else 32, 8, 3
        block_m, block_n = max(16, min(block_m, tall)), max(16, min(block_n, wide))
        warps = max(1, min(warps, block_m * block_n // 1024))
        base: dict[str, Parameter] = {
            "BLOCK_M": block_m,
            "BLOCK_N": block_n,
            "BLOCK_K": block_k,
            "GROUP": 8,
            "num_warps": warps,
            "num_stages": stages,
        }
        choices: dict[str, tuple[Parameter, ...]] = {
            "BLOCK_M": (16, 32, 64, 128, 256),
            "BLOCK_N": (16, 32, 64, 128, 256),
            "BLOCK_K": (16, 32, 64, 128),
            "GROUP": (1, 4, 8, 16),
            "num_warps": (1, 2, 4, 8, 16),
            "num_stages": (1, 2, 3, 4, 5),
        }
        return base, choices

    def _check(self, chosen: Mapping[str, Parameter], precision: str) -> None:
        block_m, block_n, block_k = (int(chosen[name]) for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
        warps, stages = int(chosen["num_warps"]), int(chosen["num_stages"])
        staged = (block_m + block_n) * block_k * self.left.dtype.itemsize * stages
        if staged > self.target.shared_bytes:
            raise ValueError(
                f"The stages need {staged // 1024} KiB of shared memory; use smaller tiles or fewer stages."
            )
        held = block_m * block_n // (32 * warps)
        if held > 128:
            raise ValueError(f"Each thread would hold {held} sums, more than its registers; use more warps.")
        if held < 2:
            raise ValueError("The tile leaves threads idle; use fewer warps.")
        if precision == "ieee" and not self.half and held * 2 + (block_m + block_n) * block_k // (16 * warps) > 640:
            raise ValueError("The tile and its factors do not fit the registers; use more warps or a smaller BLOCK_K.")

    def _render(self, chosen: Mapping[str, Parameter], form: str, precision: str) -> str:
        self._check(chosen, precision)
        operands = Operands(self.graph, self.domain)
        left = factor(operands, self.left, "left")
        right = left if self.right is self.left else factor(operands, self.right, "right")
        kernel = self._kernel(chosen, form, precision, operands, left, right)
        host = [*operands.host, *self._size_lines(left, right)]
        tiles = f"triton.cdiv(rows, {chosen['BLOCK_M']}) * triton.cdiv(columns, {chosen['BLOCK_N']})"
        kernels = [kernel]
        if form == "split_k":
            split = chosen["SPLIT"]
            anchor = operands.anchor()
            host.append(
                f"partials = torch.empty(({split}, rows, columns), device={anchor}.device, dtype=torch.float32)"
            )
            kernel.grid = f"({tiles}, {split})"
            finish = self._finish(chosen, operands)
            host += [*operands.allocations(), kernel.launch(), "count = rows * columns", finish.launch()]
            kernels.append(finish)
        else:
            kernel.grid = f"(min({chosen['PROGRAMS']}, {tiles}),)" if form == "persistent" else f"({tiles},)"
            if self.batched:
                kernel.grid = f"({tiles}, {left.host}.shape[0])"
            host += [*operands.allocations(), kernel.launch()]
        idea = {
            "tiled": "Every program computes one tile of a matrix product and applies what follows to it.",
            "persistent": "A fixed number of programs stride over the tiles of a matrix product.",
            "split_k": "Several programs share the sum of every tile; a second kernel adds their parts.",
        }[form]
        return module(self.graph, self.constructor, idea, kernels, host, operands.output_names)

    def _size_lines(self, left: Factor, right: Factor) -> list[str]:
        return [f"rows, columns, depth = {left.height}, {right.width}, {left.width}"]

    def _kernel(
        self,
        chosen: Mapping[str, Parameter],
        form: str,
        precision: str,
        operands: Operands,
        left: Factor,
        right: Factor,
    ) -> Kernel:
        names = operands.kernel_names()
        for taken in (left.name, right.name, "depth", "inner", "tile", "sums", "batch", "partials"):
            names.fresh(taken)
        body = Body(names, operands.scope())
        if form == "persistent":
            body.line("tiles = tl.cdiv(rows, BLOCK_M) * tl.cdiv(columns, BLOCK_N)")
            body.line("for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):")
            body.deeper()
        else:
            body.line("tile = tl.program_id(0)")
        body.line(_TILE_ORDER)
        self._sum_up(body, form, precision, left, right)
        index = Index()
        if form == "split_k":
            body.line("place = row.to(tl.int64)[:, None] * columns + column[None, :]")
            body.line("inside = (row[:, None] < rows) & (column[None, :] < columns)")
            body.line("part_ptr = partials_ptr + tl.program_id(1).to(tl.int64) * rows * columns")
            body.line("tl.store(part_ptr + place, sums, mask=inside)")
            outputs = {"partials_ptr": "partials"}
            values: list[Value] = []
        else:
            body.line("row, column = row[:, None].to(tl.int64), column[None, :]")
            body.line("inside = (row < rows) & (column < columns)")
            if self.batched:
                body.line("row += batch * rows")
            row_mask = "inside" if self.batched else "row < rows"
            index = Index(row_mask=row_mask, column_mask="column < columns")
            values = self.rest
            self._epilogue(body, operands, index, "sums")
            outputs = {f"{name}_ptr": name for name in operands.output_names}
        factors = {left.pointer: left.host, right.pointer: right.host}
        sizes = {size: size for size in ("rows", "columns", "depth")}
        arguments = {**factors, **operands.pointers(values), **outputs, **sizes, **operands.numbers(values)}
        comment = f"Fuses {fused(self.spoken.values() if form != 'split_k' else [self.product])}."
        if form == "split_k":
            comment = "Computes parts of the matrix product; the sum of each tile is shared by several programs."
        meta = {name: str(chosen[name]) for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP")}
        if form == "split_k":
            meta["SPLIT"] = str(chosen["SPLIT"])
        options = {name: chosen[name] for name in ("num_warps", "num_stages")}
        return Kernel("matmul_tiles", comment, "", arguments, meta, options, body.lines)

    def _sum_up(self, body: Body, form: str, precision: str, left: Factor, right: Factor) -> None:
        """The loop over the inner dimension."""
        body.line("row = tile_row * BLOCK_M + tl.arange(0, BLOCK_M)")
        body.line("column = tile_column * BLOCK_N + tl.arange(0, BLOCK_N)")
        body.line("inner = tl.arange(0, BLOCK_K)")
        first = ""
        if form == "split_k":
            body.line("chunk = tl.cdiv(tl.cdiv(depth, BLOCK_K), SPLIT) * BLOCK_K")
            body.line("first = tl.program_id(1) * chunk")
            first = "first + "
        body.line("# Rows and columns past the end wrap around; what they give is never stored.")
        body.line("safe_row, safe_column = (row % rows).to(tl.int64), (column % columns).to(tl.int64)")
        left_base, right_base = left.pointer, right.pointer
        if self.batched:
            body.line("batch = tl.program_id(1).to(tl.int64)")
            left_base, right_base = f"{left_base} + batch * rows * depth", f"{right_base} + batch * depth * columns"
        start = f"({first}inner)" if first else "inner"
        left_place = left.place("safe_row[:, None]", f"{start}[None, :]", "rows", "depth")
        right_place = right.place(f"{start}[:, None]", "safe_column[None, :]", "depth", "columns")
        left_step = "BLOCK_K * rows" if left.transposed else "BLOCK_K"
        right_step = "BLOCK_K" if right.transposed else "BLOCK_K * columns"
        body.line(f"left_ptrs = {left_base} + {left_place}")
        body.line(f"right_ptrs = {right_base} + {right_place}")
        body.line("sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)")
        if form == "split_k":
            body.line("for start in range(first, tl.minimum(first + chunk, depth), BLOCK_K):")
        else:
            body.line("for start in range(0, depth, BLOCK_K):")
        body.deeper()
        body.line("left = tl.load(left_ptrs, mask=inner[None, :] < depth - start, other=0.0)")
        body.line("right = tl.load(right_ptrs, mask=inner[:, None] < depth - start, other=0.0)")
        option = "" if self.half else f", input_precision={precision!r}"
        body.line(f"sums = tl.dot(left, right, sums{option})")
        body.line(f"left_ptrs += {left_step}")
        body.line(f"right_ptrs += {right_step}")
        body.deeper(-1)

    def _epilogue(self, body: Body, operands: Operands, index: Index, sums: str) -> None:
        body.know(self.leaf, sums)
        for value in inputs_of(self.rest):
            body.define(value, operands.load(value, index), operands.inputs[value].name)
        body.compute([output.value for output in self.graph.outputs])
        for place, output in enumerate(self.graph.outputs):
            body.line(operands.store(place, body.short(output.value), index))

    def _finish(self, chosen: Mapping[str, Parameter], operands: Operands) -> Kernel:
        names = operands.kernel_names()
        names.fresh("sums")
        body = Body(names, operands.scope())
        body.line("start = tl.program_id(0).to(tl.int64) * BLOCK")
        body.line("lane = tl.arange(0, BLOCK)")
        body.line("inside = lane < count - start")
        body.line("sums = tl.zeros([BLOCK], tl.float32)")
        body.line("for part in tl.static_range(SPLIT):")
        body.line("    part_ptr = partials_ptr + tl.cast(count, tl.int64) * part")
        body.line("    sums += tl.load(part_ptr + start + lane, mask=inside, other=0.0)")
        wide = any(not self._plain(operands, value) for value in inputs_of(self.rest))
        if wide:
            body.line("first_row = start // columns")
            body.line("place = (start - first_row * columns).to(tl.int32) + lane")
            body.line("row = first_row + place // columns")
            body.line("column = place % columns")
        index = Index(flat="start + lane", row_mask="inside", column_mask="inside")
        self._epilogue(body, operands, index, "sums")
        outputs = {f"{name}_ptr": name for name in operands.output_names}
        sizes = {"count": "count", "columns": "columns"} if wide else {"count": "count"}
        arguments = {"partials_ptr": "partials", **operands.pointers(self.rest), **outputs, **sizes}
        arguments |= operands.numbers(self.rest)
        rest = [value for value in self.rest if value.op != "product"]
        comment = f"Adds the parts of each sum, then fuses {fused(rest)}."
        meta = {"SPLIT": str(chosen["SPLIT"]), "BLOCK": "1024"}
        return Kernel(
            "add_parts", comment, "(triton.cdiv(count, 1024),)", arguments, meta, {"num_warps": 4}, body.lines
        )

    def _plain(self, operands: Operands, value: Value) -> bool:
        span = operands.inputs[value].span
        return (span.rows and span.columns and not operands.needs_row(value)) or not (span.rows or span.columns)
