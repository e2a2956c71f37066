"""Writes the text of a module that defines `ModelNew` from a translated forward method and chosen parameters."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.lowering.inductor import layout, plain
from engine.lowering.inductor.forward import Forward
from engine.lowering.inductor.kernels import PlainKernel, with_hints
from engine.lowering.inductor.labels import plain_operations
from engine.lowering.inductor.launches import GRID_LIMIT, Launch
from engine.lowering.inductor.wrapper import NotReadable
from engine.lowering.structure import Parameters, Value

_LARGEST_TILE = 65536
_BYTES = 4
_SHARED_BYTES = 227 << 10
"""Shared memory that one program may have on sm_90 (CUDA programming guide, compute capabilities)."""


@dataclass(frozen=True, slots=True)
class Shell:
    """The reference's module around the forward method, cut into text.

    `imports` and `definitions` are what the constructor needs; `constructor` is the class up to its forward method.
    """

    docstring: str
    imports: tuple[str, ...]
    definitions: tuple[str, ...]
    class_docstring: str
    bases: str
    methods: tuple[str, ...]
    forward_signature: str
    result_names: tuple[str | None, ...]


def read_shell(source: str) -> Shell:
    """Takes from the reference's source what `ModelNew` shares with it: constructor, imports, constants it uses.

    Raises:
        NotReadable: the source has no class `Model` with a forward method.
    """
    tree = ast.parse(source)
    model = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"), None)
    forward = (
        next((n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "forward"), None) if model else None
    )
    if model is None or forward is None:
        raise NotReadable("The task's module has no class Model with a forward method.")
    methods = [n for n in model.body if isinstance(n, ast.FunctionDef) and n.name in _reached(model)]
    kept = [n for n in model.body if isinstance(n, ast.Assign | ast.AnnAssign)]
    wanted = {m.id for n in (*methods, *kept, *model.bases) for m in ast.walk(n) if isinstance(m, ast.Name)}
    definitions: list[ast.stmt] = []
    changed = True
    while changed:
        changed = False
        for node in tree.body:
            names = _defined(node)
            if (
                node is not model
                and node not in definitions
                and names & wanted
                and not isinstance(node, ast.Import | ast.ImportFrom)
            ):
                definitions.append(node)
                wanted |= {m.id for m in ast.walk(node) if isinstance(m, ast.Name)}
                changed = True
    annotated = {m.id for m in ast.walk(forward.args) if isinstance(m, ast.Name)} | _returns(forward)
    imports = [
        n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom) and _defined(n) & (wanted | annotated)
    ]
    body = [_renamed(n) for n in (*kept, *methods)]
    return Shell(
        docstring=(ast.get_docstring(tree) or "A fused module.").splitlines()[0],
        imports=tuple(ast.unparse(n) for n in imports),
        definitions=tuple(ast.unparse(n) for n in sorted(definitions, key=lambda n: n.lineno)),
        class_docstring=ast.get_docstring(model) or "",
        bases=", ".join(ast.unparse(b) for b in model.bases) or "nn.Module",
        methods=tuple(ast.unparse(n) for n in body),
        forward_signature=ast.unparse(forward.args) + (f"|{ast.unparse(forward.returns)}" if forward.returns else "|"),
        result_names=_result_names(forward),
    )


def _returns(forward: ast.FunctionDef) -> set[str]:
    return {m.id for m in ast.walk(forward.returns) if isinstance(m, ast.Name)} if forward.returns else set()


def _reached(model: ast.ClassDef) -> set[str]:
    """The constructor and the methods that it calls."""
    methods = {n.name: n for n in model.body if isinstance(n, ast.FunctionDef)}
    reached, waiting = set(), ["__init__"]
    while waiting:
        name = waiting.pop()
        if name in methods and name not in reached:
            reached.add(name)
            waiting += [m.attr for m in ast.walk(methods[name]) if isinstance(m, ast.Attribute)]
    return reached - {"forward"}


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    if isinstance(node, ast.Assign):
        return {m.id for t in node.targets for m in ast.walk(t) if isinstance(m, ast.Name)}
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return {node.target.id}
    return set()


def _renamed(node: ast.stmt) -> ast.stmt:
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and part.id == "Model":
            part.id = "ModelNew"
    return node


def _result_names(forward: ast.FunctionDef) -> tuple[str | None, ...]:
    last = next((n for n in reversed(forward.body) if isinstance(n, ast.Return)), None)
    if last is None or not isinstance(last.value, ast.Tuple):
        return (None,)
    return tuple(e.id if isinstance(e, ast.Name) else None for e in last.value.elts)


def choices(forward: Forward) -> tuple[dict[str, Value], dict[str, tuple[Value, ...]]]:
    """Defaults and choices of every kernel's parameters, by flat names such as `softmax_kernel.num_warps`."""
    defaults: dict[str, Value] = {}
    options: dict[str, tuple[Value, ...]] = {}
    for name, kernel in forward.kernels.items():
        heuristic, inner = forward.written[name].heuristic, forward.written[name].inner_reduction
        free = [block for block in kernel.blocks if block not in kernel.lengths]
        for block in free:
            defaults[f"{name}.{block}"], options[f"{name}.{block}"] = _block_choices(block, kernel, heuristic, inner)
        defaults[f"{name}.num_warps"] = 4 if heuristic == "pointwise" or not inner or kernel.has_product else 8
        options[f"{name}.num_warps"] = (1, 2, 4, 8, 16)
        if kernel.has_loop:
            defaults[f"{name}.num_stages"], options[f"{name}.num_stages"] = 2, (1, 2, 3, 4)
        if kernel.has_hints:
            hints = _hint_choices(kernel)
            defaults[f"{name}.cache_hints"] = "none" if heuristic == "pointwise" else "as_lowered"
            options[f"{name}.cache_hints"] = hints
    return defaults, options


def _hint_choices(kernel: PlainKernel) -> tuple[Value, ...]:
    """The policies that give different texts."""
    found: dict[str, str] = {}
    for hints in ("none", "as_lowered", "evict_first", "evict_last"):
        found.setdefault(_function_text(with_hints(kernel.function, hints)), hints)
    return tuple(found.values())


def _block_choices(block: str, kernel: PlainKernel, heuristic: str, inner: bool) -> tuple[int, tuple[int, ...]]:
    if kernel.has_product:
        return (32, (16, 32, 64, 128)) if block == "BLOCK_INNER" else (64, (16, 32, 64, 128))
    if block == "BLOCK_SIZE":
        return 1024, (128, 256, 512, 1024, 2048, 4096, 8192)
    if heuristic == "pointwise":
        if block == "BLOCK_COLUMNS":
            return 512, (32, 64, 128, 256, 512, 1024, 2048)
        return (4 if "BLOCK_PLANES" not in kernel.blocks else 2), (1, 2, 4, 8, 16, 32, 64)
    if block == "BLOCK_ROWS":
        return (1 if inner else 64), (1, 2, 4, 8, 16, 32, 64, 128)
    if inner:
        return 2048, (256, 512, 1024, 2048, 4096, 8192)
    return 16, (1, 4, 8, 16, 32, 64, 128)


def write_module(shell: Shell, forward: Forward, idea: str, parameters: Parameters) -> str:
    """The text of the module.

    Raises:
        ValueError: the parameters make no sense together, with one sentence.
    """
    defined = {name for kernel in forward.kernels.values() for name in kernel.defined}
    imports = "\n".join(_imports(shell, bool(forward.kernels)))
    parts = [f'"""{shell.docstring}\n\n{idea}\n"""\n\n{imports}']
    parts += shell.definitions
    parts += plain.definitions(defined)
    for name, kernel in forward.kernels.items():
        parts += kernel.helpers
        operations = _listed(plain_operations(forward.written[name]))
        comment = f"# Fuses {operations}: {_describe(kernel)}."
        hints = str(parameters.get(f"{name}.cache_hints", "as_lowered"))
        parts.append(f"{comment}\n@triton.jit\n{_function_text(with_hints(kernel.function, hints))}")
    parts.append(_class_text(shell, forward, parameters))
    return "\n\n\n".join(part.strip("\n") for part in parts) + "\n"


def _imports(shell: Shell, kernels: bool) -> list[str]:
    lines = [*shell.imports]
    needed = [
        "import torch",
        *(["import triton", "import triton.language as tl"] if kernels else []),
        "from torch import nn",
    ]
    lines += [line for line in needed if line not in lines]
    standard = [line for line in lines if line.split()[1].partition(".")[0] not in ("torch", "triton")]
    others = sorted((line for line in lines if line not in standard), key=lambda line: (line.startswith("from"), line))
    return [*standard, *([""] if standard else []), *others]


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8]) or "copies"
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"


def _describe(kernel: PlainKernel) -> str:
    if kernel.has_product:
        return "each program computes one tile of the product and walks along the inner dimension"
    if kernel.lengths:
        rows = "BLOCK_ROWS whole rows" if "BLOCK_ROWS" in kernel.blocks else "everything"
        return f"each program holds {rows} at once"
    if kernel.has_loop:
        rows = "BLOCK_ROWS rows" if "BLOCK_ROWS" in kernel.blocks else "everything"
        return f"each program reduces {rows} in steps of BLOCK_COLUMNS"
    return "each program computes " + ("BLOCK_SIZE elements" if "BLOCK_SIZE" in kernel.blocks else "one tile")


def _function_text(function: ast.FunctionDef) -> str:
    head = f"def {function.name}("
    arguments = [ast.unparse(argument) for argument in function.args.args]
    one_line = f"{head}{', '.join(arguments)}):"
    signature = [one_line] if len(one_line) <= layout.LINE else layout.call(head, arguments, "):", "")
    return "\n".join([*signature, *layout.statements(function.body, "    ")])


def _class_text(shell: Shell, forward: Forward, parameters: Parameters) -> str:
    lines = [f"class ModelNew({shell.bases}):"]
    if shell.class_docstring:
        quoted = shell.class_docstring.replace("\n", "\n    ").replace('"""', "'''")
        lines.append(f'    """{quoted}"""\n' if "\n" not in quoted else f'    """{quoted}\n    """\n')
    for method in shell.methods:
        lines += ["\n".join(f"    {line}" for line in method.splitlines()), ""]
    arguments, _, returns = shell.forward_signature.partition("|")
    lines.append(f"    def forward({arguments}){f' -> {returns}' if returns else ''}:")
    body = list(forward.preamble)
    for step in forward.steps:
        body.append(step if isinstance(step, str) else _launch_text(step, forward.kernels[step.kernel], parameters))
    body.append(f"return {forward.result}")
    lines += [line if line.startswith("        ") else f"        {line}" for text in body for line in text.splitlines()]
    return "\n".join(lines)


def _launch_text(launch: Launch, kernel: PlainKernel, parameters: Parameters) -> str:
    values: dict[str, str] = {}
    tile = 1
    for block in kernel.blocks:
        if block in kernel.lengths:
            length = launch.extents[kernel.blocks[block]]
            values[block] = str(_power(int(length))) if length.isdigit() else f"triton.next_power_of_2({length})"
        else:
            number = _number(parameters, f"{kernel.name}.{block}")
            values[block] = str(number)
            tile *= number
    options = [f"num_warps={_number(parameters, f'{kernel.name}.num_warps')}"]
    if kernel.has_loop:
        options.append(f"num_stages={_number(parameters, f'{kernel.name}.num_stages')}")
    if kernel.has_product:
        tile = max(_product_tiles(values))
        _check_memory(kernel, values, parameters)
    _check_tile(tile, kernel.name)
    axes = ["z", "y", "x"] if kernel.batch_first else _axes(kernel)
    grid = [_cover(launch, kernel, axis, values) for axis in axes]
    if launch.many_rows:
        grid = [grid[0], f"min({grid[1]}, {GRID_LIMIT})", f"triton.cdiv({grid[1]}, {GRID_LIMIT})"]
    arguments = [*launch.arguments, *(f"{block}={value}" for block, value in values.items()), *options]
    start = ""
    head = f"{kernel.name}[({', '.join(grid)}{',' if len(grid) == 1 else ''})]("
    if len(head) + 8 > layout.LINE:
        start = "\n".join(["        grid = (", *(f"            {part}," for part in grid), "        )\n"])
        head = f"{kernel.name}[grid]("
    one_line = f"        {head}{', '.join(arguments)})"
    if len(one_line) > layout.LINE:
        one_line = "\n".join(layout.call(head, arguments, ")", "        "))
    return start + one_line


def _product_tiles(values: Mapping[str, str]) -> list[int]:
    blocks = [int(value) for value in values.values() if value.isdigit()]
    return [a * b for i, a in enumerate(blocks) for b in blocks[i + 1 :]]


def _check_memory(kernel: PlainKernel, values: Mapping[str, str], parameters: Parameters) -> None:
    """Refuses tiles of two operands, in each stage of the loop, that no program can hold in shared memory."""
    rows, columns, inner = (
        int(values[b]) if values.get(b, "").isdigit() else 1 for b in ("BLOCK_ROWS", "BLOCK_COLUMNS", "BLOCK_INNER")
    )
    stages = _number(parameters, f"{kernel.name}.num_stages") if kernel.has_loop else 1
    needed = (rows + columns) * inner * _BYTES * stages
    if needed > _SHARED_BYTES:
        raise ValueError(
            f"The tiles of {kernel.name} need {needed >> 10} KiB of shared memory; "
            "choose smaller blocks or fewer stages."
        )


def _check_tile(elements: int, kernel: str) -> None:
    if elements > _LARGEST_TILE:
        raise ValueError(
            f"A tile of {elements} elements is too large for one program of {kernel}; choose smaller blocks."
        )


def _axes(kernel: PlainKernel) -> list[str]:
    used = {axis for axis in kernel.blocks.values() if not axis.startswith("r")}
    return [axis for axis in ("x", "y", "z") if axis in used or (axis == "x" and not used)]


def _cover(launch: Launch, kernel: PlainKernel, axis: str, values: Mapping[str, str]) -> str:
    extent = launch.extents[axis]
    block = next((name for name, of in kernel.blocks.items() if of == axis), None)
    if block is None or values[block] == "1":
        return extent
    if extent.isdigit() and values[block].isdigit():
        return str(-(-int(extent) // int(values[block])))
    return f"triton.cdiv({extent}, {values[block]})"


def _power(number: int) -> int:
    return 1 << max(0, (number - 1).bit_length())


def _number(parameters: Parameters, name: str) -> int:
    value = parameters.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"The parameter {name} needs a whole number, not {value!r}.")
    return value
