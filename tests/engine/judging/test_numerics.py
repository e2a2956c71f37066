"""Errors are measured against the truth's variation, special values must be where the reference has them."""

from __future__ import annotations

import math

import pytest
import torch

from engine.judging import verdicts
from engine.judging.workers import numerics
from engine.judging.workers.numerics import Distance, Gate, Truth, tensor_distance
from engine.records import CaseResult, Measurement, MeasurementKind, Verdict


def against(output: torch.Tensor, own: torch.Tensor, exact: torch.Tensor | None = None) -> Distance:
    return tensor_distance(output, own, own.double() if exact is None else exact)


def tier_of(output: torch.Tensor, own: torch.Tensor) -> str:
    return numerics.tier(against(output, own), numerics.exact_gate([own.dtype], 1e-7))


def test_the_tiers_follow_the_precision_of_a_matrix_product() -> None:
    torch.manual_seed(0)
    left, right = torch.randn(64, 256), torch.randn(256, 64)
    truth = left @ right
    assert tier_of(truth + 1e-7, truth) == "exact"
    assert tier_of((left.half().float() @ right.half().float()), truth) == "reduced"
    assert tier_of((left.bfloat16().float() @ right.bfloat16().float()), truth) == "bf16"
    assert tier_of(truth * 1.05, truth) == "none"
    assert tier_of(torch.zeros_like(truth), truth) == "none"


def test_a_large_common_offset_buys_nothing() -> None:
    own = torch.randn(1000) + 1000.0
    assert against(own.mean().expand(1000), own).relative == pytest.approx(1.0, rel=1e-3)


def test_a_single_large_error_is_caught_although_the_norm_hides_it() -> None:
    own = torch.randn(1_000_000)
    output = own.clone()
    output[17] += 1.5
    assert against(output, own).relative < 2e-3
    assert tier_of(output, own) == "none"


def test_a_scalar_is_compared_with_its_own_size() -> None:
    own = torch.tensor(10.0)
    assert against(torch.tensor(10.0001), own).relative == pytest.approx(1e-5, rel=0.1)
    assert tier_of(torch.tensor(11.0), own) == "none"


def test_a_constant_output_is_compared_with_its_own_size() -> None:
    own = torch.full((10,), 3.0)
    assert tier_of(own.clone(), own) == "exact"
    assert tier_of(own + 1, own) == "none"
    zero = torch.zeros(10)
    assert tier_of(zero, zero) == "exact"
    assert tier_of(zero + 1, zero) == "none"


def test_where_only_double_precision_is_not_finite_the_reference_decides() -> None:
    own = torch.tensor([1.0, 2.0, 3.0, 4.0])
    exact = torch.tensor([1.0, math.nan, math.inf, 4.0], dtype=torch.float64)
    assert against(own.clone(), own, exact).relative == 0.0
    assert against(torch.tensor([1.0, 2.0, 3.5, 4.0]), own, exact).relative > 0.1


def test_nan_and_infinity_must_be_where_the_reference_has_them() -> None:
    own = torch.tensor([1.0, math.nan, math.inf, 2.0])
    assert against(own.clone(), own).problem == ""
    assert "NaN or infinite where they must not be" in against(torch.tensor([math.nan] * 4), own).problem
    assert "where the reference is" in against(torch.tensor([1.0, 0.0, math.inf, 2.0]), own).problem
    assert "where the reference is" in against(torch.tensor([1.0, math.nan, -math.inf, 2.0]), own).problem


def test_a_value_that_only_overflows_in_half_precision_may_be_either() -> None:
    own = torch.tensor([1.0, math.inf, 3.0], dtype=torch.float16)
    exact = torch.tensor([1.0, 70000.0, 3.0], dtype=torch.float64)
    for value in (math.inf, 65504.0):
        assert against(torch.tensor([1.0, value, 3.0], dtype=torch.float16), own, exact).problem == ""


def test_integers_and_booleans_are_exact() -> None:
    own = torch.arange(10)
    assert against(own.clone(), own).problem == ""
    assert against(own + (own == 3), own).problem == "1 of 10 int64 values differ"
    assert "bool" in against(torch.tensor([True]), torch.tensor([False])).problem


def test_the_worst_of_several_outputs_counts_and_is_named() -> None:
    own = [torch.randn(10), torch.arange(3)]
    truth = Truth(own, [own[0].double(), own[1]])
    found = numerics.distance([own[0] * 1.001, own[1] + 1], truth)
    assert found.problem.startswith("output 1: 3 of 3")
    assert found.relative == 1.0


def test_the_gates_of_others_are_computed_beside_ours() -> None:
    own = torch.tensor([1.0, 2.0])
    near, far = against(own + 5e-4, own), against(own + 1e-2, own)
    assert (near.official, near.paper) == (False, True)
    assert (far.official, far.paper) == (False, True)
    assert against(own + 0.2, own).paper is False


def test_the_exact_gate_grows_with_the_references_own_noise() -> None:
    assert numerics.exact_gate([torch.float32], 1e-7) == 1e-5
    assert numerics.exact_gate([torch.float32], 1e-5) == pytest.approx(2e-4)
    assert numerics.exact_gate([torch.bfloat16], 2e-3) == pytest.approx(6e-3)


def test_a_time_far_below_what_the_task_can_take_is_for_a_person_to_look_at() -> None:
    def case(time_us: float, cache: str) -> CaseResult:
        measurement = Measurement(MeasurementKind.MEASURED, time_us, (time_us, time_us), cache=cache)
        return CaseResult("default", 1.0, Verdict.CORRECT, measurement, bound_us=100.0)

    assert verdicts._faster_than_light(case(20.0, "cold"))
    assert not verdicts._faster_than_light(case(95.0, "cold"))
    assert not verdicts._faster_than_light(case(20.0, "warm"))
    assert not verdicts._faster_than_light(CaseResult("default", 1.0, Verdict.CORRECT))


def test_lowered_tiers_stay_clear_of_wrong_answers_and_the_exact_one_of_rounding() -> None:
    torch.manual_seed(0)
    own = torch.randn(1000)
    truth = Truth([own], [own.double()])
    off = [own + 1e-3 * torch.randn(1000)]
    assert Gate().judge(off, truth, 0.0)[1] == "reduced"
    assert Gate(cap=1e-4).judge(off, truth, 0.0)[1] == "none"
    assert Gate(cap=1e-4).judge(off, truth, 1e-4)[1] == "exact", "rounding of the reference is nobody's fault"


def test_a_tolerance_takes_the_place_of_the_tiers_element_by_element() -> None:
    own = torch.tensor([100.0, 1.0, 0.0, math.nan])
    truth = Truth([own], [own.double()])
    gate = Gate(tolerance=(0.1, 0.05))
    found, tier = gate.judge([torch.tensor([104.9, 1.1, 0.09, math.nan])], truth, 0.0)
    assert (found.problem, tier) == ("", "bf16"), "the least precise baseline is what it is compared with"
    found, tier = gate.judge([torch.tensor([104.9, 1.1, 0.11, math.nan])], truth, 0.0)
    assert tier == "none" and found.problem.startswith("1 values are further from the truth than")
    assert gate.judge([torch.tensor([100.0, 1.0, 0.0, 0.0])], truth, 0.0)[1] == "none"
    whole = torch.arange(4)
    assert gate.judge([whole + torch.tensor([0, 0, 0, 1])], Truth([whole], [whole]), 0.0)[1] == "none"
