"""Speedups with their uncertainty: what is called faster, and how a result reads."""

from __future__ import annotations

import math

import pytest

from engine.judging.ratios import Ratio, of_rounds, over_sessions, standing, weighted
from engine.records import CaseResult, Evaluation, Verdict
from engine.result_line import result_line


def test_rounds_give_the_ratio_of_what_was_measured_side_by_side() -> None:
    # The device slows down by half in the third round; the ratio does not notice.
    ratio = of_rounds([10.0, 10.1, 20.0, 9.9], [5.0, 5.0, 10.0, 5.0])
    assert ratio.value == pytest.approx(2.0, rel=1e-3)
    assert 1.97 < ratio.low < 2.0 < ratio.high < 2.03
    assert of_rounds([4.0], [2.0]) == Ratio(2.0, 0.0)


@pytest.mark.parametrize(
    ("ratio", "band", "word"),
    [
        (Ratio(1.05, 0.01), 0.0, "faster"),
        (Ratio(1.05, 0.01), 0.05, "same"),
        (Ratio(1.05, 0.04), 0.0, "same"),
        (Ratio(1.019, 0.0), 0.0, "same"),
        (Ratio(0.985, 0.0), 0.0, "same"),
        (Ratio(0.9, 0.01), 0.0, "slower"),
        (Ratio(0.9, 0.01), 0.2, "same"),
    ],
)
def test_a_difference_counts_where_the_whole_interval_clears_the_band(ratio: Ratio, band: float, word: str) -> None:
    assert standing(ratio, band) == word


def test_independent_uncertainties_add_like_the_sides_of_a_triangle() -> None:
    product = Ratio(2.0, 0.03).times(Ratio(1.5, 0.04))
    assert product.value == pytest.approx(3.0)
    assert product.half == pytest.approx(0.05)
    mean = weighted([(1.0, Ratio(1.0, 0.03)), (3.0, Ratio(16.0, 0.0))])
    assert mean.value == pytest.approx(8.0)
    assert mean.half == pytest.approx(0.0075)


def test_processes_that_differ_widen_the_interval() -> None:
    alike = over_sessions([Ratio(1.5, 0.004), Ratio(1.5, 0.004), Ratio(1.5, 0.004)])
    assert (alike.value, alike.half) == pytest.approx((1.5, 0.004))
    apart = over_sessions([Ratio(1.4, 0.004), Ratio(1.5, 0.004), Ratio(1.6, 0.004)])
    assert apart.half > 0.1
    assert over_sessions([Ratio(1.4, 0.004)]) == Ratio(1.4, 0.004)


def test_how_far_a_reference_differs_from_itself_counts_to_either_side() -> None:
    assert Ratio(0.98, 0.01).reach == pytest.approx(Ratio(1 / 0.98, 0.01).reach)
    assert Ratio(1.0, 0.01).reach == pytest.approx(math.exp(0.01) - 1)


def test_a_result_reads_in_one_line() -> None:
    evaluation = Evaluation(
        Verdict.CORRECT,
        "time",
        "",
        cases=(CaseResult("default", 1.0, Verdict.CORRECT, bound_us=7.1, bound_by="memory"),),
        time_us=10.0,
        speedup={"eager": 1.42, "compile": 1.06, "compile_max": 1.01, "mine.py": 0.8, "eager_strict": 1.42},
        speedup_ci95={"eager": (1.401, 1.439), "compile": (1.05, 1.07)},
        standing={"eager": "faster", "compile": "faster", "compile_max": "same", "mine.py": "slower"},
        bound_fraction=0.71,
    )
    assert result_line(evaluation) == (
        "1.42x eager [1.40, 1.44], 1.06x torch.compile, 1.01x max-autotune (same), 0.80x mine.py (slower), "
        "71% of the bound (memory)"
    )
    assert result_line(Evaluation(Verdict.INCORRECT, "correct", "wrong")) == ""
