"""Add to a residual in place, then normalise each row by its root mean square: what serving engines fuse."""

import torch

FAMILY = "normalisation"
ROWS, COLUMNS = 8192, 4096
SMALL = {"ROWS": 21, "COLUMNS": 270}

ENTRY = "add_norm"
MUTATES = ["residual"]


def reference(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, epsilon: float = 1e-6) -> torch.Tensor:
    """RMS norm of x + residual times weight; the sum stays in `residual`."""
    residual.add_(x)
    inverse = torch.rsqrt(residual.pow(2).mean(dim=-1, keepdim=True) + epsilon)
    return residual * inverse * weight


def make_inputs() -> dict[str, object]:
    return {
        "x": torch.randn(ROWS, COLUMNS),
        "residual": torch.randn(ROWS, COLUMNS),
        "weight": 1.0 + 0.3 * torch.randn(COLUMNS),
    }


CASES = [
    {"name": "prefill", "inputs": make_inputs, "weight": 2.0},
    {"name": "decode", "inputs": make_inputs, "sizes": {"ROWS": 128}, "small": {"ROWS": 4}},
]
