"""Writes pointwise operations as Triton expressions.

Half-precision tensors are computed in float32; a value is rounded where the reference converts it
explicitly and where it is stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from engine.lowering.templates.graph import FLOATS, HALVES, Value

ATOM, POWER, UNARY, PRODUCT, SUM, SHIFT, AND, XOR, OR, COMPARE, NOT = range(11)
"""How tightly an expression binds, tightest first."""

TYPE_NAMES = {
    torch.float16: "tl.float16",
    torch.bfloat16: "tl.bfloat16",
    torch.float32: "tl.float32",
    torch.float64: "tl.float64",
    torch.int64: "tl.int64",
    torch.int32: "tl.int32",
    torch.int16: "tl.int16",
    torch.int8: "tl.int8",
    torch.uint8: "tl.uint8",
    torch.bool: "tl.int1",
}

TANH = """
@triton.jit
def tanh(x):
    # Near zero the quotient would cancel, so a short series takes over.
    size = tl.abs(x)
    decay = tl.exp(-2.0 * size)
    quotient = (1.0 - decay) / (1.0 + decay)
    square = x * x
    series = size * (1.0 + square * (-0.33333333 + square * (0.13333333 - 0.05396825 * square)))
    result = tl.where(size < 0.1, series, quotient)
    return tl.where(x < 0.0, -result, result)
"""

LOG1P = """
@triton.jit
def log1p(x):
    # Keeps the digits of x that adding one rounds away.
    total = 1.0 + x
    change = total - 1.0
    return tl.where(change == 0.0, x, tl.log(total) * (x / tl.where(change == 0.0, 1.0, change)))
"""

EXPM1 = """
@triton.jit
def expm1(x):
    # Near zero the difference would cancel, so a short series takes over.
    series = x * (1.0 + x * (0.5 + x * (0.16666667 + x * (0.041666667 + x * 0.0083333333))))
    return tl.where(tl.abs(x) < 0.1, series, tl.exp(x) - 1.0)
"""

POWER_OF = """
@triton.jit
def power(base, exponent):
    return tl.exp2(exponent * tl.log2(base))
"""

DEVICE_FUNCTIONS = {"tanh": TANH, "log1p": LOG1P, "expm1": EXPM1, "power": POWER_OF}
"""Functions that Triton lacks, by the name with which expressions call them."""

_INFIX = {
    "add": ("+", SUM),
    "sub": ("-", SUM),
    "mul": ("*", PRODUCT),
    "div": ("/", PRODUCT),
    "lt": ("<", COMPARE),
    "le": ("<=", COMPARE),
    "gt": (">", COMPARE),
    "ge": (">=", COMPARE),
    "eq": ("==", COMPARE),
    "ne": ("!=", COMPARE),
    "and": ("&", AND),
    "or": ("|", OR),
    "xor": ("^", XOR),
}
_CALLS = {
    "exp": "tl.exp",
    "exp2": "tl.exp2",
    "log": "tl.log",
    "log2": "tl.log2",
    "sqrt": "tl.sqrt",
    "rsqrt": "tl.rsqrt",
    "abs": "tl.abs",
    "sigmoid": "tl.sigmoid",
    "erf": "tl.erf",
    "sin": "tl.sin",
    "cos": "tl.cos",
    "floor": "tl.floor",
    "ceil": "tl.ceil",
    "maximum": "tl.maximum",
    "minimum": "tl.minimum",
    "where": "tl.where",
    "tanh": "tanh",
    "log1p": "log1p",
    "expm1": "expm1",
    "power": "power",
}
_FORMATS: dict[str, tuple[str, int]] = {
    "neg": ("-{0}", UNARY),
    "square": ("{0} * {0}", PRODUCT),
    "cube": ("{0} * {0} * {0}", PRODUCT),
    "reciprocal": ("1.0 / {0}", PRODUCT),
    "relu": ("tl.where({0} < 0.0, 0.0, {0})", ATOM),
    "leaky_relu": ("tl.where({0} < 0.0, {1} * {0}, {0})", ATOM),
    "elu": ("tl.where({0} < 0.0, expm1({0}), {0})", ATOM),
    "scaled_elu": ("tl.where({0} < 0.0, {1} * expm1({0}), {0})", ATOM),
    "selu": ("1.0507009873554805 * tl.where({0} < 0.0, 1.6732632423543772 * expm1({0}), {0})", PRODUCT),
    "gelu": ("0.5 * {0} * (1.0 + tl.erf(0.7071067811865476 * {0}))", PRODUCT),
    "gelu_tanh": ("{0} * tl.sigmoid(1.5957691216057308 * {0} * (1.0 + 0.044715 * {0} * {0}))", PRODUCT),
    "sign": ("tl.where({0} > 0.0, 1.0, tl.where({0} < 0.0, -1.0, 0.0))", ATOM),
    "not": ("{0} == 0", COMPARE),
    "isnan": ("{0} != {0}", COMPARE),
    "isinf": ("tl.abs({0}) == float('inf')", COMPARE),
}

COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne", "not", "isnan", "isinf"})
POINTWISE = frozenset({*_INFIX, *_CALLS, *_FORMATS, "cast"})

_RENDERINGS: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "exp": math.exp,
    "square": lambda a: a * a,
    "cube": lambda a: a * a * a,
    "abs": abs,
    "neg": lambda a: -a,
    "sqrt": math.sqrt,
    "relu": lambda a: max(a, 0.0),
    "maximum": max,
    "minimum": min,
    "cast": lambda a: a,
}


def computed_type(dtype: torch.dtype) -> torch.dtype:
    """The type in which values of a dtype are held inside a kernel."""
    return torch.float32 if dtype in HALVES else dtype


def literal(number: float | int | bool) -> str:
    """A number as Triton source."""
    if isinstance(number, float) and not math.isfinite(number):
        return f"float('{number}')"
    return repr(number)


def expression(value: Value, operands: list[tuple[str, int]]) -> tuple[str, int]:
    """The operation of `value` on operands, each a text with its binding; the result likewise."""
    if value.op == "cast":
        return _cast(value, operands[0])
    wanted = _operand_type(value)
    texts = [
        text if value.op == "where" and place == 0 else _promoted(text, source, wanted)
        for place, (text, source) in enumerate(zip(operands, value.inputs, strict=True))
    ]
    if value.op in _INFIX:
        sign, binding = _INFIX[value.op]
        left = _wrap(texts[0], binding - (1 if binding == COMPARE else 0))
        return f"{left} {sign} {_wrap(texts[1], binding - 1)}", binding
    if value.op in _CALLS:
        return f"{_CALLS[value.op]}({', '.join(text for text, _ in texts)})", ATOM
    pattern, binding = _FORMATS[value.op]
    return pattern.format(*(_wrap(text, ATOM) for text in texts)), binding


def repeats_operand(value: Value) -> bool:
    """Whether the expression names its first operand more than once, so that it deserves a name."""
    return value.op in _FORMATS and _FORMATS[value.op][0].count("{0}") > 1


def at_masked_lanes(value: Value, operands: list[float | None]) -> float | None:
    """What lanes outside the tensor hold, given what they hold in the operands; None is any finite number."""
    if value.op == "mul" and 0.0 in operands and all(number is None or math.isfinite(number) for number in operands):
        return 0.0
    if value.op in ("sub", "add") and operands[0] == -math.inf and operands[1] is None:
        return -math.inf
    function = _RENDERINGS.get(value.op)
    if function is None or any(number is None for number in operands):
        return None
    try:
        result = float(function(*operands))
    except (ValueError, OverflowError, ZeroDivisionError):
        return math.nan
    return result


def _operand_type(value: Value) -> torch.dtype:
    """The type that operands are brought to before the operation."""
    if value.op in COMPARISONS or value.op == "where":
        tensors = [source for source in value.inputs[value.op == "where" :] if source.op != "constant"]
        types = {computed_type(source.dtype) for source in tensors}
        floats = types & FLOATS
        return next(iter(floats or types), torch.float32)
    return computed_type(value.dtype)


def _promoted(operand: tuple[str, int], source: Value, wanted: torch.dtype) -> tuple[str, int]:
    if source.op == "constant":
        number = source.constant
        if wanted in FLOATS and isinstance(number, int) and not isinstance(number, bool) and not source.text("text"):
            return literal(float(number)), ATOM
        return operand
    if wanted is not torch.bool and computed_type(source.dtype) is not wanted:
        return f"{_wrap(operand, ATOM)}.to({TYPE_NAMES[wanted]})", ATOM
    return operand


def _cast(value: Value, operand: tuple[str, int]) -> tuple[str, int]:
    source = value.inputs[0]
    if source.op == "constant":
        return operand
    if value.dtype is torch.bool:
        return f"{_wrap(operand, SHIFT)} != 0", COMPARE
    if value.dtype in HALVES and source.dtype not in (value.dtype,):
        rounded = f"{_wrap(operand, ATOM)}.to({TYPE_NAMES[value.dtype]})"
        return f"{rounded}.to(tl.float32)", ATOM
    if computed_type(value.dtype) == computed_type(source.dtype):
        return operand
    return f"{_wrap(operand, ATOM)}.to({TYPE_NAMES[value.dtype]})", ATOM


def _wrap(operand: tuple[str, int], loosest: int) -> str:
    text, binding = operand
    return f"({text})" if binding > loosest or (binding == UNARY and loosest == ATOM) else text
