"""How far outputs are from the truth, and which precision tier that earns.

The relative error of one tensor is ||y - y64|| / ||y64 - mean(y64)||, so that a large common offset
buys nothing; where y64 has no variation (a scalar loss, a constant) the norm of y64 itself stands
below. Integer and boolean tensors are compared exactly, with the reference at its own dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from engine.judging.workers.values import dtype_name

TIERS = ("exact", "reduced", "bf16", "none")
"""From the most precise down; `none` is wrong at every setting."""

_HALF = (torch.float16, torch.bfloat16)
_REDUCED = 2e-3
_BF16 = 1.5e-2
_SINGLE_ERROR = 10.0
"""How many times the gate the largest single error may be, relative to that element plus the spread."""

OFFICIAL_TOLERANCE = {torch.float32: 1e-4}
"""KernelBench's `get_tolerance_for_precision`; 1e-2 for half types, as both atol and rtol."""

PAPER_TOLERANCE = 5e-2
"""The gate of AdaExplore (arXiv 2604.16625), as both atol and rtol."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What one call of the reference gives: at its own dtype and, where it runs there, in float64."""

    own: list[torch.Tensor]
    exact: list[torch.Tensor]


@dataclass(frozen=True, slots=True)
class Distance:
    """The errors of one set of outputs against the truth.

    Attributes:
        relative: the largest relative error over the tensors.
        single: the largest error of one element, relative to its size plus the tensor's spread.
        absolute: the largest absolute error of one element.
        problem: what is wrong beyond errors, in one line; empty where nothing is.
    """

    relative: float = 0.0
    single: float = 0.0
    absolute: float = 0.0
    official: bool = True
    paper: bool = True
    problem: str = ""


def _comparable(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def tensor_distance(output: torch.Tensor, own: torch.Tensor, exact: torch.Tensor) -> Distance:
    """The distance of one output; shapes and dtypes are known to agree with `own`."""
    if not _comparable(own.dtype):
        wrong = int((output != own).sum())
        if not wrong:
            return Distance()
        problem = f"{wrong} of {own.numel()} {dtype_name(own.dtype)} values differ"
        return Distance(1.0, 1.0, float("inf"), False, False, problem)
    if own.dtype.is_complex:
        output, own, exact = torch.view_as_real(output), torch.view_as_real(own), torch.view_as_real(exact)
    official, paper = _gates(output, own)
    # Where the reference itself overflows at its own dtype, the candidate may follow it or the truth; where only
    # double precision is not finite, it must follow the reference.
    settled = torch.isfinite(own)
    exact = torch.where(torch.isfinite(exact) | ~settled, exact, own.to(exact.dtype))
    special = ~settled & ~torch.isfinite(exact)
    same = (output == own) | (torch.isnan(output) & torch.isnan(own))
    astray = int((special & ~same).sum())
    lost = int((settled & ~torch.isfinite(output)).sum())
    if lost:
        return Distance(
            1.0, 1.0, float("inf"), False, False, f"{lost} values are NaN or infinite where they must not be"
        )
    if astray:
        return Distance(
            1.0, 1.0, float("inf"), False, False, f"{astray} values differ where the reference is NaN or infinite"
        )
    y, y64 = output[settled].double(), exact[settled].double()
    if y.numel() == 0:
        return Distance(official=official, paper=paper)
    error = y - y64
    spread = y64 - y64.mean()
    scale = float(torch.linalg.vector_norm(spread))
    whole = float(torch.linalg.vector_norm(y64))
    # Below this the variation is rounding noise of a constant.
    if scale <= 1e-12 * whole or y.numel() == 1:
        scale = whole
    norm = float(torch.linalg.vector_norm(error))
    relative = norm / scale if scale else (0.0 if norm == 0.0 else norm)
    typical = scale / y.numel() ** 0.5
    floor = y64.abs() + typical
    single = float((error.abs() / floor.clamp_min(1e-300)).max()) if norm else 0.0
    return Distance(relative, single, float(error.abs().max()), official, paper)


def _gates(output: torch.Tensor, own: torch.Tensor) -> tuple[bool, bool]:
    tolerance = OFFICIAL_TOLERANCE.get(own.dtype, 1e-2)
    official = torch.allclose(output, own, atol=tolerance, rtol=tolerance, equal_nan=True)
    paper = torch.allclose(output, own, atol=PAPER_TOLERANCE, rtol=PAPER_TOLERANCE, equal_nan=True)
    return official, paper


def alike(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Whether two sets of outputs have the same shapes."""
    return len(some) == len(others) and all(one.shape == other.shape for one, other in zip(some, others, strict=True))


def distance(outputs: Sequence[torch.Tensor], truth: Truth) -> Distance:
    """The worst distance over the tensors of one call; `problem` names the output."""
    worst = Distance()
    for index, (output, own, exact) in enumerate(zip(outputs, truth.own, truth.exact, strict=True)):
        one = tensor_distance(output, own, exact)
        where = f"output {index}: " if len(truth.own) > 1 else ""
        worst = merge(worst, one if not one.problem else _named(one, where))
    return worst


def _named(one: Distance, where: str) -> Distance:
    return Distance(one.relative, one.single, one.absolute, one.official, one.paper, where + one.problem)


def merge(one: Distance, other: Distance) -> Distance:
    """The worse of both in every respect."""
    return Distance(
        max(one.relative, other.relative),
        max(one.single, other.single),
        max(one.absolute, other.absolute),
        one.official and other.official,
        one.paper and other.paper,
        one.problem or other.problem,
    )


def noise(truth: Truth) -> float:
    """The reference's own relative error at its dtype: what no candidate can be blamed for."""
    worst = 0.0
    for own, exact in zip(truth.own, truth.exact, strict=True):
        if _comparable(own.dtype):
            worst = max(worst, tensor_distance(own, own, exact).relative)
    return worst


@dataclass(frozen=True, slots=True)
class Gate:
    """What decides whether the outputs of one case are right, and what precision they have.

    Attributes:
        tolerance: the case's own atol and rtol, for each element; None for the tiers.
        cap: what no limit of a lowered tier exceeds: a tenth of the smallest error among known wrong answers.
    """

    tolerance: tuple[float, float] | None = None
    cap: float = float("inf")

    def judge(self, outputs: Sequence[torch.Tensor], truth: Truth, noise: float) -> tuple[Distance, str]:
        """The distance of the outputs and their tier, `none` where they are wrong.

        Args:
            outputs: of the reference's shapes and dtypes.
            truth: what they are to be.
            noise: the reference's own relative error.
        """
        found = distance(outputs, truth)
        earned = tier(found, exact_gate([tensor.dtype for tensor in truth.own], noise), self.cap)
        if self.tolerance is None or found.problem:
            return found, earned
        outside = sum(
            _outside(output, own, exact, *self.tolerance)
            for output, own, exact in zip(outputs, truth.own, truth.exact, strict=True)
        )
        if outside:
            atol, rtol = self.tolerance
            problem = f"{outside} values are further from the truth than the case's atol {atol:g} and rtol {rtol:g}"
            return replace(found, problem=problem), "none"
        # The case takes what no tier would: it is compared with the least precise baseline.
        return found, earned if earned != "none" else TIERS[-2]


def _outside(output: torch.Tensor, own: torch.Tensor, exact: torch.Tensor, atol: float, rtol: float) -> int:
    """How many finite values miss by more than `atol` plus `rtol` times the size of the true one."""
    if not _comparable(own.dtype):
        return 0
    settled = torch.isfinite(own)
    y64 = exact[settled].to(torch.complex128 if own.dtype.is_complex else torch.float64)
    return int(((output[settled].to(y64.dtype) - y64).abs() > atol + rtol * y64.abs()).sum())


def restless_from(outputs: Sequence[torch.Tensor]) -> float:
    """The relative error between two calls of one reference that sums in changing order does not explain."""
    return 1e-2 if any(tensor.dtype in _HALF for tensor in outputs) else 1e-4


def exact_gate(dtypes: Sequence[torch.dtype], reference_noise: float) -> float:
    """The largest relative error that counts as exact for outputs of these dtypes."""
    half = any(dtype in _HALF for dtype in dtypes)
    return max(1e-5, (3.0 if half else 20.0) * reference_noise)


def tier(found: Distance, gate: float, cap: float = float("inf")) -> str:
    """The precision tier that the distance earns.

    Args:
        found: the distance.
        gate: the task's exact gate.
        cap: what the gates of the lowered tiers do not exceed.
    """
    if found.problem:
        return "none"
    for name, limit in (("exact", gate), ("reduced", min(_REDUCED, cap)), ("bf16", min(_BF16, cap))):
        if found.relative <= limit and found.single <= _SINGLE_ERROR * max(limit, gate):
            return name
    return "none"
