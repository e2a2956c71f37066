"""Says in a few words what a kernel fuses."""

from __future__ import annotations

from collections.abc import Sequence

from engine.lowering.templates.graph import Value

_WORDS = {
    "add": "addition",
    "sub": "subtraction",
    "mul": "multiplication",
    "div": "division",
    "exp": "exponential",
    "log": "logarithm",
    "square": "square",
    "rsqrt": "inverse square root",
    "sqrt": "square root",
    "gelu": "GELU",
    "gelu_tanh": "GELU (tanh form)",
    "relu": "ReLU",
    "leaky_relu": "leaky ReLU",
    "softmax": "softmax",
    "log_softmax": "log-softmax",
    "where": "selection",
    "maximum": "maximum",
    "minimum": "minimum",
    "pick": "gather",
    "matmul": "matrix product",
    "cast": "conversion",
    "neg": "negation",
    "lt": "comparison",
    "le": "comparison",
    "gt": "comparison",
    "ge": "comparison",
    "eq": "comparison",
    "ne": "comparison",
}
_REDUCED = {"sum": "sum", "max": "maximum over a row", "min": "minimum over a row"}


def fused(values: Sequence[Value]) -> str:
    """The operations among values as a list of words, each once."""
    words: dict[str, None] = {}
    for value in values:
        if value.op in ("input", "constant", "count", "reshape"):
            continue
        if value.op == "loaded_pick":
            continue
        word = _REDUCED[str(value.settings["kind"])] if value.op == "reduce" else _WORDS.get(value.op, value.op)
        words[word] = None
    listed = list(words)
    if len(listed) < 2:
        return "".join(listed) or "a copy"
    return f"{', '.join(listed[:-1])} and {listed[-1]}"
