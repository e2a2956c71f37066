"""Plain Triton for what Inductor takes from its run-time library: a `tl` function, or a small function to define."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

DIRECT: Mapping[str, str] = {
    "libdevice.exp": "tl.exp",
    "libdevice.exp2": "tl.exp2",
    "libdevice.log": "tl.log",
    "libdevice.log2": "tl.log2",
    "libdevice.sqrt": "tl.sqrt",
    "libdevice.rsqrt": "tl.rsqrt",
    "libdevice.erf": "tl.erf",
    "libdevice.sin": "tl.sin",
    "libdevice.cos": "tl.cos",
    "libdevice.abs": "tl.abs",
    "libdevice.floor": "tl.floor",
    "libdevice.ceil": "tl.ceil",
    "libdevice.fma": "tl.fma",
    "tl_math.exp": "tl.exp",
    "tl_math.exp2": "tl.exp2",
    "tl_math.log": "tl.log",
    "tl_math.log2": "tl.log2",
    "tl_math.sqrt": "tl.sqrt",
    "tl_math.rsqrt": "tl.rsqrt",
    "tl_math.erf": "tl.erf",
    "tl_math.sin": "tl.sin",
    "tl_math.cos": "tl.cos",
    "tl_math.abs": "tl.abs",
    "tl_math.floor": "tl.floor",
    "tl_math.ceil": "tl.ceil",
    "triton_helpers.maximum": "tl.maximum",
    "triton_helpers.minimum": "tl.minimum",
    "triton_helpers.max2": "tl.max",
    "triton_helpers.min2": "tl.min",
}
"""Inductor's name to Triton's."""

DEFINED: Mapping[str, str] = {
    "libdevice.tanh": "tanh",
    "libdevice.log1p": "log1p",
    "libdevice.expm1": "expm1",
    "libdevice.pow": "power",
    "libdevice.log10": "log10",
    "libdevice.sinh": "sinh",
    "libdevice.cosh": "cosh",
    "libdevice.isnan": "is_nan",
    "libdevice.isinf": "is_infinite",
    "libdevice.trunc": "truncate",
    "triton_helpers.div_floor_integer": "floor_divide",
    "triton_helpers.remainder_integer": "floor_remainder",
    "triton_helpers.any": "any_true",
    "triton_helpers.select_one": "select_one",
    "triton_helpers.prod": "product_of",
    "triton_helpers.promote_to_tensor": "as_tensor",
    "triton_helpers.welford_reduce": "welford_step",
    "triton_helpers.welford": "welford_finish",
    "triton_helpers.welford_combine": "welford_merge",
    "triton_helpers.online_softmax_combine": "softmax_step",
    "triton_helpers.online_softmax_reduce": "softmax_finish",
    "triton_helpers.maximum_with_index": "larger_with_index",
    "triton_helpers.minimum_with_index": "smaller_with_index",
    "triton_helpers.max_with_index": "max_with_index",
    "triton_helpers.min_with_index": "min_with_index",
}
"""Inductor's name to that of a function below."""

_NEEDS: Mapping[str, tuple[str, ...]] = {
    "product_of": ("_multiply",),
}

_TEXTS: Mapping[str, str] = {
    "tanh": '''
def tanh(x):
    """Hyperbolic tangent; the exponential of a negative number cannot overflow."""
    decay = tl.exp(-2.0 * tl.abs(x))
    size = (1.0 - decay) / (1.0 + decay)
    return tl.where(x < 0, -size, size)
''',
    "log1p": '''
def log1p(x):
    """log(1 + x), exact for small x: the rounding of 1 + x is divided out."""
    shifted = 1.0 + x
    plain = (shifted == 1.0) | (shifted == float("inf"))
    return tl.where(plain, x, tl.log(shifted) * (x / tl.where(plain, 1.0, shifted - 1.0)))
''',
    "expm1": '''
def expm1(x):
    """exp(x) - 1, by its series where the subtraction would cancel."""
    series = x * (1.0 + x * (0.5 + x * (1.0 / 6.0 + x * (1.0 / 24.0 + x * (1.0 / 120.0 + x / 720.0)))))
    return tl.where(tl.abs(x) < 0.3, series, tl.exp(x) - 1.0)
''',
    "power": '''
def power(base, exponent):
    """base ** exponent; a negative base needs a whole exponent."""
    size = tl.exp2(exponent * tl.log2(tl.abs(base)))
    half = exponent * 0.5
    odd = half != tl.floor(half)
    signed = tl.where(odd, -size, size)
    signed = tl.where(exponent == tl.floor(exponent), signed, float("nan"))
    return tl.where(exponent == 0, 1.0, tl.where(base < 0, signed, size))
''',
    "log10": """
def log10(x):
    return tl.log2(x) * 0.30102999566398120
""",
    "sinh": """
def sinh(x):
    return 0.5 * (tl.exp(x) - tl.exp(-x))
""",
    "cosh": """
def cosh(x):
    return 0.5 * (tl.exp(x) + tl.exp(-x))
""",
    "is_nan": """
def is_nan(x):
    return x != x
""",
    "is_infinite": """
def is_infinite(x):
    return tl.abs(x) == float("inf")
""",
    "truncate": """
def truncate(x):
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))
""",
    "floor_divide": '''
def floor_divide(a, b):
    """Integer quotient rounded down, where Triton's rounds toward zero."""
    return a // b - ((a % b != 0) & ((a < 0) != (b < 0))).to(tl.int32)
''',
    "floor_remainder": '''
def floor_remainder(a, b):
    """Integer remainder with the sign of b, where Triton's has the sign of a."""
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
''',
    "select_one": '''
def select_one(x, mask, dim, keep_dims):
    """The one element along a dimension that a mask selects."""
    return tl.sum(tl.where(mask, x, 0), dim, keep_dims=keep_dims)
''',
    "any_true": """
def any_true(x, axis):
    return tl.max(x.to(tl.int32), axis)
""",
    "_multiply": """
def _multiply(a, b):
    return a * b
""",
    "product_of": """
def product_of(x, axis):
    return tl.reduce(x, axis, _multiply)
""",
    "as_tensor": """
def as_tensor(x):
    return x + tl.zeros((1,), tl.int1)
""",
    "welford_step": '''
def welford_step(value, mean, squares, count):
    """Adds one value to each running mean and sum of squared deviations."""
    count += 1
    delta = value - mean
    mean += delta / count
    return mean, squares + delta * (value - mean), count
''',
    "welford_merge": '''
def welford_merge(mean, squares, count, other_mean, other_squares, other_count):
    """Merges two sets of running means and sums of squared deviations."""
    total = count + other_count
    share = other_count / tl.maximum(total, 1.0)
    delta = other_mean - mean
    return mean + delta * share, squares + other_squares + delta * delta * count * share, total
''',
    "welford_finish": '''
def welford_finish(mean, squares, count, axis):
    """Merges running means and sums of squared deviations along an axis."""
    row_count = tl.sum(count, axis)
    row_mean = tl.sum(mean * count, axis) / tl.maximum(row_count, 1.0)
    spread = mean - tl.expand_dims(row_mean, axis)
    return row_mean, tl.sum(squares + count * spread * spread, axis), row_count
''',
    "softmax_step": '''
def softmax_step(largest, total, value):
    """Adds one value to each running maximum and sum of exponentials below that maximum."""
    larger = tl.maximum(largest, value)
    shift = tl.where(larger == float("-inf"), 0.0, larger)
    return larger, total * tl.exp(largest - shift) + tl.exp(value - shift)
''',
    "softmax_finish": '''
def softmax_finish(largest, total, axis):
    """Merges running maxima and sums of exponentials along an axis."""
    row_largest = tl.max(largest, axis)
    shift = tl.expand_dims(tl.where(row_largest == float("-inf"), 0.0, row_largest), axis)
    return row_largest, tl.sum(total * tl.exp(largest - shift), axis)
''',
    "larger_with_index": """
def larger_with_index(value, index, other_value, other_index):
    keep = (value > other_value) | ((value == other_value) & (index < other_index))
    return tl.where(keep, value, other_value), tl.where(keep, index, other_index)
""",
    "smaller_with_index": """
def smaller_with_index(value, index, other_value, other_index):
    keep = (value < other_value) | ((value == other_value) & (index < other_index))
    return tl.where(keep, value, other_value), tl.where(keep, index, other_index)
""",
    "max_with_index": '''
def max_with_index(value, index, axis):
    """The largest value along an axis and the lowest index that has it."""
    largest = tl.max(value, axis)
    has_largest = value == tl.expand_dims(largest, axis)
    return largest, tl.min(tl.where(has_largest, index, 2147483647), axis)
''',
    "min_with_index": '''
def min_with_index(value, index, axis):
    """The smallest value along an axis and the lowest index that has it."""
    smallest = tl.min(value, axis)
    has_smallest = value == tl.expand_dims(smallest, axis)
    return smallest, tl.min(tl.where(has_smallest, index, 2147483647), axis)
''',
}

_DROPPED_ARGUMENTS: Mapping[str, int] = {"welford_step": 4, "softmax_step": 3, "softmax_finish": 3}


def arity(name: str) -> int | None:
    """How many leading arguments of Inductor's call a defined function takes; None for all of them."""
    return _DROPPED_ARGUMENTS.get(name)


def definitions(names: Iterable[str]) -> list[str]:
    """Texts of the functions and of those that they need, each once, in an order that can be executed."""
    wanted: set[str] = set()
    for name in names:
        wanted.update((name, *_NEEDS.get(name, ())))
    return [f"@triton.jit{text.rstrip()}" for name, text in _TEXTS.items() if name in wanted]
