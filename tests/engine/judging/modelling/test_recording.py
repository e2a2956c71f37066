"""Recorded launches really run, and say what Triton would compile."""

from __future__ import annotations

import pytest

from tests.engine.judging.modelling.conftest import Bench


@pytest.mark.parametrize(
    ("call", "shapes", "expected", "tolerance"),
    [
        ("add", [(1000,), (1000,)], "x[0] + x[1]", 0.0),
        ("softmax", [(19, 300)], "torch.softmax(x[0], -1)", 1e-6),
        ("softmax_passes", [(5, 3000)], "torch.softmax(x[0], -1)", 1e-6),
        ("matmul", [(70, 90), (90, 100)], "x[0] @ x[1]", 1e-4),
        ("total", [(9000,)], "x[0].sum().reshape(1)", 1e-3),
        ("scale", [(1000,)], "x[0] * 2.5", 1e-6),
        ("transpose", [(50, 70)], "x[0].t()", 0.0),
        ("variance", [(7, 300)], "x[0].var(1, correction=0)", 1e-5),
        ("functions", [(256,)], "torch.tanh(x[0]) + torch.erf(x[0]) + x[0].abs() ** 1.5", 1e-5),
        ("host_questions", [(10, 10)], "x[0]", 0.0),
    ],
)
def test_interpreted_kernels_compute(
    bench: Bench, call: str, shapes: list[tuple[int, ...]], expected: str, tolerance: float
) -> None:
    reply = bench.record(call, *shapes, expected=expected)
    assert "failure" not in reply, reply
    assert reply["error"] <= tolerance
    assert reply["launches"]


@pytest.mark.parametrize(("call", "expected"), [("add", "x[0] + x[1]"), ("matmul", "x[0] @ x[1]")])
def test_bfloat16_is_computed_with(bench: Bench, call: str, expected: str) -> None:
    reply = bench.record(call, (64, 64), (64, 64), expected=expected, dtype="bfloat16")
    assert reply["dtype"] == "torch.bfloat16"
    assert reply.get("error", reply) < 0.13


def test_a_launch_is_specialised_as_triton_would(bench: Bench) -> None:
    reply = bench.record("add", (1000,), (1000,), expected="x[0] + x[1]", num_warps=2)
    (launch,) = reply["launches"]
    assert launch["signature"] == {
        "x_ptr": "*fp32",
        "y_ptr": "*fp32",
        "out_ptr": "*fp32",
        "count": "i32",
        "BLOCK": "constexpr",
    }
    assert {"path": [4], "value": 1024} in launch["constants"]
    divisible = [entry["path"] for entry in launch["attributes"]]
    assert [3] not in divisible
    assert launch["options"] == {"num_warps": 2}
    assert launch["grid"] == [1, 1, 1]


def test_an_argument_of_one_is_a_constant(bench: Bench) -> None:
    (launch,) = bench.sample("strided", (4096,), step=1)["trace"]
    assert launch["signature"]["step"] == "constexpr"
    assert {"path": [3], "value": 1} in launch["constants"]


def test_a_grid_the_device_refuses_is_refused(bench: Bench) -> None:
    reply = bench.record("too_many_programs", (16,), expected="x[0]")
    assert "70,000 programs along axis 1, the limit is 65,535" in reply["failure"]


def test_an_unknown_launch_argument_is_refused(bench: Bench) -> None:
    reply = bench.record("unknown_keyword", (16,), expected="x[0]")
    assert "'blocksize'" in reply["failure"]
