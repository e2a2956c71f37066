"""Library calls that Inductor leaves in place, as calls of public PyTorch functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from engine.lowering.inductor.syntax import expression
from engine.lowering.inductor.tensors import elements
from engine.lowering.inductor.wrapper import NotReadable


def library_call(function: str, arguments: Sequence[str], named: Mapping[str, str]) -> str:
    """The text of a call.

    Args:
        function: as the wrapper names it, such as `extern_kernels.addmm` or `torch.ops.aten.cumsum.default`.
        arguments: texts of the positional arguments.
        named: texts of the others.

    Raises:
        NotReadable: the routine draws random numbers, or exists only where there is a GPU.
    """
    if any(part in function for part in ("seed", "rand", "bernoulli", "dropout")):
        raise NotReadable("The task draws random numbers while it computes.")
    name = function
    if function.startswith("extern_kernels."):
        name = f"torch.{function.removeprefix('extern_kernels.')}"
        if name == "torch.convolution":
            return _convolution(arguments, named)
    elif not _runs_on_cpu(function):
        raise NotReadable(f"The lowered call needs {name}, which only a CUDA build of PyTorch has.")
    kept = {key: value for key, value in named.items() if (key, value) not in (("alpha", "1"), ("beta", "1"))}
    return f"{name}({', '.join([*arguments, *(f'{key}={value}' for key, value in kept.items())])})"


def _convolution(arguments: Sequence[str], named: Mapping[str, str]) -> str:
    dimensions = len(elements(expression(named["stride"])))
    transposed = named.get("transposed") == "True"
    function = f"nn.functional.conv{'_transpose' if transposed else ''}{dimensions}d"
    ones, zeros = (f"({', '.join([digit] * dimensions)}{',' if dimensions == 1 else ''})" for digit in "10")
    unchanged = {"bias": "None", "groups": "1", "stride": ones, "dilation": ones, "padding": zeros}
    unchanged["output_padding"] = zeros
    keys = ["bias", "stride", "padding", *(["output_padding"] if transposed else []), "groups", "dilation"]
    kept = [f"{key}={named[key]}" for key in keys if key in named and named[key] != unchanged[key]]
    return f"{function}({', '.join([*arguments, *kept])})"


def _runs_on_cpu(function: str) -> bool:
    """Whether a routine exists on a machine without a GPU, where candidates must run as well."""
    name = f"aten::{function.rpartition('aten.')[2].removesuffix('.default')}"
    keys = ("CPU", "CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in keys)
