"""CUDA's libdevice functions for Triton's interpreter, which has none, written with numpy.

Kernels reach them as `tl.extra.cuda.libdevice.NAME`, `triton.language.extra.libdevice.NAME` or a
name imported from either, and always end in the builder's `create_extern_elementwise` with a symbol
such as `__nv_tanhf`. Answering there serves all of them at once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

_Function = Callable[..., Any]


def _each(function: Callable[..., float]) -> _Function:
    """A scalar function of the math module, element by element, in double precision."""
    return np.vectorize(function, otypes=[np.float64])


def _lgamma(x: float) -> float:
    return math.inf if math.isinf(x) or (x <= 0 and x == math.floor(x)) else math.lgamma(x)


def _tgamma(x: float) -> float:
    try:
        return math.gamma(x)
    except OverflowError:
        return math.inf
    except ValueError:
        return math.nan


def _normcdf(x: Any) -> Any:
    return 0.5 * _each(math.erfc)(-x / math.sqrt(2.0))


def _inverse_normal(p: Any) -> Any:
    """The quantile of the normal distribution by bisection: exact enough and short."""
    low, high = np.full_like(p, -40.0), np.full_like(p, 40.0)
    for _ in range(80):
        middle = (low + high) / 2
        below = _normcdf(middle) < p
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    result = (low + high) / 2
    return np.where(p <= 0, -np.inf, np.where(p >= 1, np.inf, result))


def _round_away(x: Any) -> Any:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


_FLOATS: dict[str, _Function] = {
    "abs": np.abs,
    "fabs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "nearbyint": np.rint,
    "round": _round_away,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "cbrt": np.cbrt,
    "rcbrt": lambda x: 1.0 / np.cbrt(x),
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: 10.0**x,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "logb": lambda x: np.floor(np.log2(np.abs(x))),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "sinpi": lambda x: np.sin(np.pi * x),
    "cospi": lambda x: np.cos(np.pi * x),
    "erf": _each(math.erf),
    "erfc": _each(math.erfc),
    "lgamma": _each(_lgamma),
    "tgamma": _each(_tgamma),
    "erfcx": lambda x: np.exp(x * x) * _each(math.erfc)(x),
    "normcdf": _normcdf,
    "normcdfinv": _inverse_normal,
    "erfinv": lambda x: _inverse_normal((x + 1.0) / 2.0) / math.sqrt(2.0),
    "erfcinv": lambda x: -_inverse_normal(x / 2.0) / math.sqrt(2.0),
    "saturate": lambda x: np.clip(np.nan_to_num(x, nan=0.0), 0.0, 1.0),
    "pow": np.power,
    "powi": np.power,
    "fmod": np.fmod,
    "remainder": np.remainder,
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "rhypot": lambda x, y: 1.0 / np.hypot(x, y),
    "fmax": np.fmax,
    "fmin": np.fmin,
    "fdim": lambda x, y: np.maximum(x - y, 0.0),
    "copysign": np.copysign,
    "nextafter": np.nextafter,
    "ldexp": lambda x, n: np.ldexp(x, n.astype(np.int32)),
    "scalbn": lambda x, n: np.ldexp(x, n.astype(np.int32)),
    "fma": lambda x, y, z: x * y + z,
    "norm3d": lambda x, y, z: np.sqrt(x * x + y * y + z * z),
    "rnorm3d": lambda x, y, z: 1.0 / np.sqrt(x * x + y * y + z * z),
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "fdiv": np.divide,
    "rcp": lambda x: 1.0 / x,
}
"""By the function's name without its prefix, `f` suffix, `fast_` and rounding mode."""

_TESTS: dict[str, _Function] = {
    "isnan": np.isnan,
    "isinf": np.isinf,
    "finite": np.isfinite,
    "isfinited": np.isfinite,
    "signbit": np.signbit,
    "signbitd": np.signbit,
    "isinfd": np.isinf,
    "isnand": np.isnan,
}

_INTEGERS: dict[str, _Function] = {
    "min": np.minimum,
    "max": np.maximum,
    "mul24": np.multiply,
    "umin": np.minimum,
    "umax": np.maximum,
    "ullmin": np.minimum,
    "ullmax": np.maximum,
    "llmin": np.minimum,
    "llmax": np.maximum,
    "hadd": lambda x, y: (x.astype(np.int64) + y) >> 1,
    "rhadd": lambda x, y: (x.astype(np.int64) + y + 1) >> 1,
    "llabs": np.abs,
    "popc": lambda x: np.bitwise_count(x),
    "popcll": lambda x: np.bitwise_count(x),
    "clz": lambda x: 32 - _bits(x.astype(np.uint32)),
    "clzll": lambda x: 64 - _bits(x.astype(np.uint64)),
    "ffs": lambda x: _bits(x & -x),
    "ffsll": lambda x: _bits(x & -x),
    "mulhi": lambda x, y: (x.astype(np.int64) * y.astype(np.int64)) >> 32,
    "umulhi": lambda x, y: (x.astype(np.uint64) * y.astype(np.uint64)) >> np.uint64(32),
    "sad": lambda x, y, z: np.abs(x.astype(np.int64) - y) + z,
}


def _bits(x: Any) -> Any:
    return np.vectorize(lambda value: int(value).bit_length(), otypes=[np.int64])(x)


_ROUNDING = ("_rn", "_rz", "_ru", "_rd")
_CONVERSIONS = {"float", "double", "int", "uint", "ll", "ull", "float2int", "float2uint", "float2ll", "float2ull"}


def function_of(symbol: str) -> _Function:
    """The numpy function for a libdevice symbol such as `__nv_fast_expf`; NotImplementedError for an unknown one."""
    name = symbol.removeprefix("__nv_").removeprefix("fast_")
    rounding = next((suffix for suffix in _ROUNDING if name.endswith(suffix)), "")
    name = name.removesuffix(rounding) if rounding else name
    for candidate in (
        name,
        name.removesuffix("f"),
        name.removesuffix("d"),
        name.removeprefix("f"),
        name.removeprefix("d"),
    ):
        for table in (_FLOATS, _TESTS, _INTEGERS):
            if candidate in table:
                return table[candidate]
    if name in ("llrint", "llrintf"):
        return np.rint
    if name in ("llround", "llroundf", "lround", "lroundf"):
        return _round_away
    source, found, target = name.partition("2")
    if found and source in ("float", "double", "int", "uint", "ll", "ull"):
        if target in ("int", "uint", "ll", "ull"):
            return {"": np.trunc, "_rn": np.rint, "_rz": np.trunc, "_ru": np.ceil, "_rd": np.floor}[rounding]
        return lambda x: x
    raise NotImplementedError(f"the interpreter has no stand-in for libdevice's {symbol}; write it with tl.math")


def _evaluate(symbol: str, arguments: list[Any], dtype: Any) -> Any:
    """The result as a numpy array of `dtype`; float32 functions are computed in float64 and rounded once."""
    if symbol.startswith(("__nv_float_as_int", "__nv_int_as_float", "__nv_float_as_uint", "__nv_uint_as_float")) or (
        symbol in ("__nv_double_as_longlong", "__nv_longlong_as_double")
    ):
        return arguments[0].view(dtype)
    function = function_of(symbol)
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arguments]
    with np.errstate(all="ignore"):
        result = np.asarray(function(*wide))
        return result.astype(dtype)


def install() -> None:
    """Gives Triton's interpreter `create_extern_elementwise`. Needs TRITON_INTERPRET=1; call once, before forking."""
    from triton.language.extra.cuda import libdevice as cuda_libdevice
    from triton.runtime import interpreter

    builder: Any = interpreter.InterpreterBuilder

    def create_extern_elementwise(
        self: Any, library: str, path: str, symbol: str, arguments: list[Any], result_type: Any, pure: bool
    ) -> Any:
        scalar = getattr(result_type, "scalar", result_type)
        dtype = interpreter._get_np_dtype(scalar)
        return interpreter.TensorHandle(_evaluate(symbol, [argument.data for argument in arguments], dtype), scalar)

    builder.create_extern_elementwise = create_extern_elementwise
    _open_to_the_interpreter(cuda_libdevice, interpreter.interpreter_semantic)


def _open_to_the_interpreter(cuda_libdevice: Any, semantic: Any) -> None:
    """Lets library functions be called as plain ones, in the CUDA module and in the target-neutral one.

    The interpreter hands its semantics to `triton.language` only; the target-neutral module is
    empty until a compiler maps it to a target's.
    """
    from triton.language.extra import libdevice as generic

    for name, function in list(vars(cuda_libdevice).items()):
        if getattr(function, "__triton_builtin__", False):
            opened = _with_semantic(function, semantic)
            setattr(cuda_libdevice, name, opened)
            setattr(generic, name, opened)


def _with_semantic(function: _Function, semantic: Any) -> _Function:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs["_semantic"] = kwargs.get("_semantic") or semantic
        return function(*args, **kwargs)

    return call
