"""Kernels as people write them run, are sampled at the large form, compile, and get a plausible time."""

from __future__ import annotations

import pytest

from engine.judging.modelled_time import modelled_time_us
from tests.engine.judging.modelling.conftest import CANDIDATES, Bench

FOREIGN = CANDIDATES / "foreign.py"


@pytest.mark.parametrize(
    ("call", "shapes", "expected"),
    [
        ("attention", [(70, 32)] * 3, "torch.softmax(x[0] @ x[1].t() * 32 ** -0.5, -1) @ x[2]"),
        ("pool", [(2, 3, 19, 19)], "torch.nn.functional.max_pool2d(x[0], 3, 2, 1)"),
        ("own_descriptors", [(64, 128)], "x[0] + 1"),
        ("given_descriptors", [(64, 128)], "x[0] + 1"),
        ("mixture", [(256,)], "torch.sigmoid(x[0]) + (x[0].abs() + 1).rsqrt() + x[0].clamp(0, 1)"),
        ("persistent", [(200_000,)], "x[0] * 2"),
    ],
)
def test_they_compute(bench: Bench, call: str, shapes: list[tuple[int, ...]], expected: str) -> None:
    reply = bench.record(call, *shapes, expected=expected, path=FOREIGN)
    assert "failure" not in reply, reply
    assert reply["error"] < 1e-5


@pytest.mark.parametrize(
    ("call", "shapes", "least_us", "most_us"),
    [
        ("attention", [(8192, 64)] * 3, 35.0, 400.0),
        ("pool", [(64, 64, 224, 224)], 239.0, 400.0),
        ("own_descriptors", [(8192, 8192)], 124.0, 150.0),
        ("given_descriptors", [(8192, 8192)], 124.0, 150.0),
        ("mixture", [(1024,)], 5.0, 12.0),
        ("persistent", [(1 << 26,)], 124.0, 500.0),
    ],
)
def test_they_are_modelled(
    bench: Bench, call: str, shapes: list[tuple[int, ...]], least_us: float, most_us: float
) -> None:
    reply = bench.sample(call, *shapes, path=FOREIGN)
    assert "failure" not in reply, reply
    assert reply["written"] == 1.0 and reply["notes"] == []
    answer = bench.compile(reply["trace"], source=FOREIGN.read_text())
    assert answer["error"] is None, answer["error"]
    found = modelled_time_us(reply["trace"], answer["kernels"], "sm_90")
    assert least_us < found.time_us < most_us, found.parts
