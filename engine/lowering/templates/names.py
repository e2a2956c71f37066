"""Names in generated text: which are taken, and how others are made unique."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

from engine.lowering.templates.pointwise import DEVICE_FUNCTIONS

_TAKEN = frozenset(
    {*keyword.kwlist, "tl", "triton", "torch", "nn", "self", "range", "float", "int", "min", "max", "abs", "math"}
)

HOST_NAMES = frozenset(
    {
        *("rows", "columns", "count", "depth", "programs", "partials", "partial_1", "partial_2", "outer", "reduced"),
        *("queries", "keys", "width", "value_width", "heads", "largest", "totals", "sums", "planes", "height"),
        *("out_height", "out_width", "add_parts", "attend", "finish", "fused_elementwise", "join_parts"),
        *("matmul_tiles", "pool_windows", "reduce_all", "reduce_columns"),
    }
)
"""What templates call sizes, buffers and kernels in `forward`; nothing else may be called so there."""


class Names:
    """Gives every name once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {*_TAKEN, *DEVICE_FUNCTIONS, *taken}

    def fresh(self, wanted: str) -> str:
        """The wanted name, made an identifier, with a number where it is taken."""
        plain = re.sub(r"\W+", "_", wanted).strip("_").lower() or "value"
        if plain[0].isdigit():
            plain = f"value_{plain}"
        name, number = plain, 2
        while name in self._taken:
            name, number = f"{plain}_{number}", number + 1
        self._taken.add(name)
        return name


def host_name(argument: str) -> str:
    """The name under which `forward` uses an argument of that name."""
    clashes = argument in HOST_NAMES or argument in _TAKEN or argument in DEVICE_FUNCTIONS
    return f"{argument}_given" if clashes or argument.endswith("_rows") else argument
