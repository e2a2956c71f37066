"""The model ranks what is known to be faster before what is known to be slower, the same way every time."""

from __future__ import annotations

from typing import Any

import pytest

from engine.judging.devices import device_for
from engine.judging.modelled_time import (
    ModelError,
    ModelledTime,
    bound_time_us,
    modelled_time_us,
    occupancy,
    reference_times_us,
)
from tests.engine.judging.modelling.conftest import Bench

ELEMENTS = ((1 << 26,), (1 << 26,))
ROWS = (16384, 8192)
SQUARE = ((4096, 4096), (4096, 4096))


def model(bench: Bench, call: str, *shapes: tuple[int, ...], arch: str = "sm_90", **options: Any) -> ModelledTime:
    trace = bench.sample(call, *shapes, **options)["trace"]
    answer = bench.compile(trace, arch=arch)
    assert answer["error"] is None, answer["error"]
    return modelled_time_us(trace, answer["kernels"], arch)


def time_us(bench: Bench, call: str, *shapes: tuple[int, ...], **options: Any) -> float:
    return model(bench, call, *shapes, **options).time_us


def test_a_good_elementwise_kernel_comes_close_to_the_bound_and_not_below(bench: Bench) -> None:
    bound = bound_time_us({"bytes": 3 * 4 << 26, "flops": 0.0, "dtype": "float32"}, device_for("sm_90"))
    assert bound < time_us(bench, "add", *ELEMENTS) < 1.15 * bound


def test_tiny_blocks_with_many_warps_lose(bench: Bench) -> None:
    assert time_us(bench, "add", *ELEMENTS, BLOCK=64, num_warps=8) > 2 * time_us(bench, "add", *ELEMENTS)


def test_fusion_wins_by_traffic_when_large_and_by_launches_when_small(bench: Bench) -> None:
    assert time_us(bench, "add_twice", *ELEMENTS) > 1.8 * time_us(bench, "add_add", *ELEMENTS)
    small = ((1 << 14,), (1 << 14,))
    assert time_us(bench, "add_twice", *small) > 1.8 * time_us(bench, "add_add", *small)


def test_one_pass_beats_three_passes(bench: Bench) -> None:
    assert time_us(bench, "softmax_passes", ROWS) > 1.5 * time_us(bench, "softmax", ROWS)


def test_rereading_a_short_row_is_cheap(bench: Bench) -> None:
    short = (131072, 1024)
    assert time_us(bench, "softmax_passes", short) < 1.3 * time_us(bench, "softmax", short, num_warps=4)


def test_spills_cost(bench: Bench) -> None:
    assert time_us(bench, "softmax", ROWS, num_warps=1) > 1.1 * time_us(bench, "softmax", ROWS, num_warps=4)


def test_large_tiles_beat_small_ones_in_a_matrix_product(bench: Bench) -> None:
    times = [
        time_us(bench, "matmul", *SQUARE, BM=m, BN=n, BK=k)
        for m, n, k in ((128, 128, 32), (64, 64, 32), (32, 32, 32), (16, 16, 16))
    ]
    assert times == sorted(times)
    assert times[-1] > 4 * times[0]


def test_precision_decides_which_peak_counts(bench: Bench) -> None:
    half = time_us(bench, "matmul", *SQUARE, dtype="bfloat16", BK=64)
    reduced = time_us(bench, "matmul", *SQUARE)
    emulated = time_us(bench, "matmul", *SQUARE, PRECISION="tf32x3")
    exact = time_us(bench, "matmul", *SQUARE, PRECISION="ieee", BM=64, BN=64, num_warps=4)
    assert half < reduced < emulated < exact


def test_pipelining_hides_memory_behind_products(bench: Bench) -> None:
    assert time_us(bench, "matmul", *SQUARE, num_stages=3) < time_us(bench, "matmul", *SQUARE, num_stages=1)


def test_scattered_writes_lose(bench: Bench) -> None:
    shape = (8192, 8192)
    assert time_us(bench, "transpose", shape, BM=1, BN=1024) > 2 * time_us(bench, "transpose", shape, BM=32, BN=32)


def test_atomics_on_one_address_queue(bench: Bench) -> None:
    assert time_us(bench, "total", (1 << 26,), BLOCK=256) > 2 * time_us(bench, "total", (1 << 26,), BLOCK=4096)


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90", "sm_100"])
def test_every_architecture_has_a_time_that_explains_itself(bench: Bench, arch: str) -> None:
    found = model(bench, "matmul_then_softmax", (2048, 2048), (2048, 2048), arch=arch)
    product, softmax = found.parts
    assert found.time_us > 0
    assert product["flops"] == pytest.approx(2 * 2048**3)
    assert 0 < product["occupancy"] <= 1 and product["waves"] > 0 and product["limit"] in product["times_us"]
    assert product["dram_bytes"] >= 3 * 2048 * 2048 * 4 * 0.99
    assert softmax["name"] == "_softmax"


def test_the_time_is_the_same_to_the_last_digit(bench: Bench) -> None:
    first = model(bench, "matmul", (1111, 999), (999, 777))
    assert model(bench, "matmul", (1111, 999), (999, 777)) == first


def test_an_unseen_computation_is_never_faster_than_the_bound() -> None:
    bound = {"bytes": 1 << 30, "flops": 0.0, "dtype": "float32"}
    found = modelled_time_us([], [], "sm_90", bound=bound)
    assert found.time_us == pytest.approx(bound_time_us(bound, device_for("sm_90")), abs=1e-3)


def test_a_launch_without_its_kernel_is_an_error(bench: Bench) -> None:
    trace = bench.sample("add", (1024,), (1024,))["trace"]
    with pytest.raises(ModelError, match="add_kernel was launched but not compiled"):
        modelled_time_us(trace, [], "sm_90")


@pytest.mark.parametrize(
    ("warps", "registers", "shared", "expected"),
    [
        (4, 32, 0, (16, "threads")),
        (4, 128, 0, (4, "registers")),
        (8, 64, 98304, (2, "shared")),
        (1, 16, 0, (32, "programs")),
    ],
)
def test_occupancy_follows_the_scarcest_resource(
    warps: int, registers: int, shared: int, expected: tuple[int, str]
) -> None:
    kernel = {"kernel": "k", "num_warps": warps, "registers": registers, "shared_bytes": shared}
    found = occupancy(kernel, device_for("sm_90"))
    assert (found.programs, found.limit) == expected


def test_the_eager_baseline_pays_for_every_call_and_knows_its_tier() -> None:
    size = 4096 * 4096 * 4
    product = {
        "op": "mm",
        "read_bytes": 2 * size,
        "write_bytes": size,
        "flops": 2.0 * 4096**3,
        "operations": 0.0,
        "slowdown": 1.0,
        "dtype": "float32",
        "reads": {"0": size, "1": size},
        "writes": {"2": size},
    }
    gelu = {
        "op": "gelu",
        "read_bytes": size,
        "write_bytes": size,
        "flops": 0.0,
        "operations": 1e7,
        "slowdown": 1.0,
        "dtype": "float32",
        "reads": {"2": size},
        "writes": {"3": size},
    }
    bound = {"bytes": 3 * size, "flops": 2.0 * 4096**3, "dtype": "float32"}
    exact = reference_times_us([product, gelu], bound, "sm_90")
    reduced = reference_times_us([product, gelu], bound, "sm_90", tier="reduced")
    assert exact["eager"] > 3 * reduced["eager"]
    assert reduced["eager"] > reference_times_us([product], bound, "sm_90", tier="reduced")["eager"] > reduced["bound"]


def test_an_unknown_architecture_is_named() -> None:
    with pytest.raises(ValueError, match="sm_42"):
        modelled_time_us([], [], "sm_42")
