"""How far PyTorch's own operators fall short of one pass over their memory, or of the peak of a matrix product.

Factors were measured on an H200 with torch 2.11 (`benchmarks/library_against_device.py`), as time over what
the bytes alone would take.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

_FIXED = {
    "logsumexp": 7.0,  # four operators inside
    "max": 1.75,
    "min": 1.75,
    "argmax": 1.75,
    "argmin": 1.75,
    "cumsum": 3.0,
    "cumprod": 3.0,
    "max_pool2d_with_indices": 1.5,
    "max_pool3d_with_indices": 1.5,
    "avg_pool2d": 2.2,
    "avg_pool3d": 2.2,
}

_SHORT_ROW = 1024
"""The longest row that softmax keeps in registers, so that it reads it once."""

_ROW_PASSES = {"_softmax": 1.9, "_log_softmax": 1.5}
_INNER_SOFTMAX_PASSES = 5.2
_TRANSPOSED_PASSES, _BROADCAST_PASSES, _STRIDED_PASSES = 3.3, 1.4, 1.15

_NORM_PASSES = {"native_layer_norm": 1.5, "native_group_norm": 2.4, "native_batch_norm": 2.4}

_GROUPS_AT_FULL_SPEED = {"native_layer_norm": 975.0, "native_group_norm": 975.0, "native_batch_norm": 480.0}
"""Each group of a normalisation is worked on by one program: with fewer, a pass takes as much longer."""

_POOL_OPERATIONS = 54.0
"""Arithmetic for each element of a pooling window, addresses and bounds included."""

_CONVOLUTION = {2: 1.4, 3: 1.7}
_TRANSPOSED_3D, _DEPTHWISE = 6.5, 4.5


def slowdown(name: str, args: Sequence[Any], out: torch.Tensor | None, multiplies: bool = False) -> float:
    """By which factor an operator takes longer than its bytes or its matrix product at the usual efficiency.

    Args:
        name: the operator, without its namespace.
        args: its positional arguments.
        out: the first tensor that it makes, if any.
        multiplies: whether it is a matrix product or a convolution.
    """
    if name in ("_softmax", "_log_softmax"):
        return _softmax(name, args[0], int(args[1]))
    if name in _NORM_PASSES:
        return _normalisation(name, args)
    if name in ("convolution", "_convolution", "cudnn_convolution"):
        return _convolution(args)
    if name in _FIXED:
        return _FIXED[name]
    if multiplies or out is None:
        return 1.0
    return _elementwise([argument for argument in args if isinstance(argument, torch.Tensor)], out)


def pooled_operations(name: str, args: Sequence[Any], out: torch.Tensor | None) -> float:
    """Arithmetic of a pooling operator; zero for any other."""
    if "_pool" not in name or out is None or len(args) < 2 or not isinstance(args[1], (list, tuple)):
        return 0.0
    return _POOL_OPERATIONS * out.numel() * math.prod(args[1])


def _softmax(name: str, x: torch.Tensor, dim: int) -> float:
    if dim % x.dim() != x.dim() - 1:
        return _INNER_SOFTMAX_PASSES
    return 1.0 if int(x.shape[dim]) <= _SHORT_ROW else _ROW_PASSES[name]


def _normalisation(name: str, args: Sequence[Any]) -> float:
    x: torch.Tensor = args[0]
    if name == "native_layer_norm":
        groups = int(x.numel()) // max(1, math.prod(args[1]))
    elif name == "native_group_norm":
        groups = int(x.shape[0]) * int(args[6])
    elif args[5]:
        groups = int(x.shape[1])
    else:
        return 1.0  # with running statistics it is elementwise
    return float(max(_NORM_PASSES[name], _GROUPS_AT_FULL_SPEED[name] / max(1, groups)))


def _convolution(args: Sequence[Any]) -> float:
    x, weight = args[0], args[1]
    dimensions = x.dim() - 2
    transposed, groups = (bool(args[6]), int(args[8])) if len(args) > 8 else (False, 1)
    if groups > 1 and groups == x.shape[1]:
        return _DEPTHWISE
    if transposed:
        return _TRANSPOSED_3D if dimensions == 3 else 1.0
    return _CONVOLUTION.get(dimensions, 1.0) if math.prod(weight.shape[2:]) > 1 else 1.0


def _elementwise(tensors: Sequence[torch.Tensor], out: torch.Tensor) -> float:
    """Plain streaming, unless an operand lies across the output's order, is repeated over it, or has gaps."""
    whole = [tensor for tensor in tensors if tensor.shape == out.shape]
    if any(_innermost(tensor) != _innermost(out) for tensor in whole):
        return _TRANSPOSED_PASSES
    if len(whole) < len(tensors) and any(1 < tensor.numel() < out.numel() for tensor in tensors) and whole:
        return _BROADCAST_PASSES
    return 1.0 if all(_dense(tensor) for tensor in whole) else _STRIDED_PASSES


def _innermost(tensor: torch.Tensor) -> int:
    """The dimension in which neighbours lie side by side; the last where none does."""
    for dimension in range(tensor.dim() - 1, -1, -1):
        if tensor.stride(dimension) == 1 and tensor.shape[dimension] > 1:
            return dimension
    return tensor.dim() - 1


def _dense(tensor: torch.Tensor) -> bool:
    reach = 1 + sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return reach == tensor.numel()
