"""Assembles the text of a candidate: imports, kernels, `ModelNew`.

Templates give the statements; names, argument lists, line breaks and the order of parts are made here.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.lowering.structure import Value as Parameter
from engine.lowering.templates.constructor import Constructor
from engine.lowering.templates.graph import Graph
from engine.lowering.templates.pointwise import DEVICE_FUNCTIONS

_WIDTH = 112
_JOINED = "\N{NO-BREAK SPACE}"


@dataclass(slots=True)
class Kernel:
    """One kernel and how it is launched. `arguments` and `meta` map its parameters to host text."""

    name: str
    comment: str
    grid: str
    arguments: dict[str, str] = field(default_factory=dict)
    meta: dict[str, str] = field(default_factory=dict)
    options: dict[str, Parameter] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def text(self) -> str:
        """The definition."""
        names = [*self.arguments, *(f"{name}: tl.constexpr" for name in self.meta)]
        head = _call(f"def {self.name}", names, ":")
        body = textwrap.indent("\n".join(map(_broken, self.lines)), "    ")
        comment = textwrap.fill(self.comment, _WIDTH, initial_indent="# ", subsequent_indent="# ")
        return f"{comment}\n@triton.jit\n{head}\n{body}"

    def launch(self) -> str:
        """The call, for `forward`."""
        options = [f"{name}={value}" for name, value in {**self.meta, **self.options}.items()]
        return _call(f"{self.name}[{self.grid}]", [*self.arguments.values(), *options], "")


def module(
    graph: Graph,
    constructor: Constructor,
    idea: str,
    kernels: Sequence[Kernel],
    host: Sequence[str],
    results: Sequence[str],
) -> str:
    """The whole text. `host` are the statements of `forward`, launches included."""
    functions = "\n".join(kernel.text() for kernel in kernels)
    used = [name for name in DEVICE_FUNCTIONS if re.search(rf"\b{name}\(", functions)]
    extra = [text for text in constructor.imports if text not in ("import torch", "from torch import nn")]
    parts = [f'"""{idea}"""', _imports(extra)]
    parts += ["\n".join(constructor.definitions)] if constructor.definitions else []
    parts += [DEVICE_FUNCTIONS[name].strip() for name in used]
    parts += [kernel.text() for kernel in kernels]
    parts.append(_class(graph, constructor, host, results))
    return "\n\n\n".join([f"{parts[0]}\n\n{parts[1]}", *parts[2:]]) + "\n"


def _imports(extra: Sequence[str]) -> str:
    standard = [text for text in extra if "torch" not in text]
    other = [text for text in extra if "torch" in text]
    lines = ["import torch", "import triton", "import triton.language as tl", "from torch import nn", *other]
    return "\n".join([*standard, "", *lines] if standard else lines)


def _class(graph: Graph, constructor: Constructor, host: Sequence[str], results: Sequence[str]) -> str:
    parameters = ", ".join(
        ["self", *(f"{graph.renamed.get(name, name)}: {kind}" for name, kind in graph.arguments.items())]
    )
    result = ", ".join(results)
    kind = "torch.Tensor"
    if graph.returns == "list":
        kind, result = "list[torch.Tensor]", f"[{result}]"
    elif graph.returns == "tuple":
        kind = f"tuple[{', '.join(['torch.Tensor'] * len(results))}]"
        result += "," if len(results) == 1 else ""
    head = _call("def forward", parameters.split(", "), f" -> {kind}:")
    renamed = [f"{name} = {argument}" for name, argument in graph.renamed.items()]
    body = textwrap.indent("\n".join([*renamed, *host, f"return {result}"]), "    ")
    methods = [constructor.methods] if constructor.methods else []
    text = "\n\n".join(textwrap.indent(method, "    ") for method in [*methods, f"{head}\n{body}"])
    return f"class ModelNew(nn.Module):\n{text}"


def _call(head: str, arguments: Sequence[str], tail: str) -> str:
    line = f"{head}({', '.join(arguments)}){tail}"
    if len(line) <= _WIDTH:
        return line
    whole = ", ".join(argument.replace(" ", _JOINED) for argument in arguments)
    inner = textwrap.fill(
        whole, _WIDTH, initial_indent="    ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return f"{head}(\n{inner.replace(_JOINED, ' ')},\n){tail}"


def _broken(line: str) -> str:
    """A statement that is too long, with the arguments of its call on lines of their own."""
    if len(line) <= _WIDTH or not line.endswith(")") or "(" not in line:
        return line
    depth, start = 0, len(line)
    while depth >= 0 and start > 0:
        start -= 1
        depth += {")": 1, "(": -1}.get(line[start], 0)
        if depth == 0 and line[start] == "(":
            break
    indent = line[: len(line) - len(line.lstrip())]
    inner = line[start + 1 : -1]
    filled = textwrap.fill(inner, _WIDTH, initial_indent=f"{indent}    ", subsequent_indent=f"{indent}    ")
    return f"{line[: start + 1]}\n{filled}\n{indent})"


def meta(parameters: Mapping[str, Parameter], *names: str) -> dict[str, str]:
    """The compile-time arguments of those names with their values."""
    return {name: repr(parameters[name]) for name in names}
