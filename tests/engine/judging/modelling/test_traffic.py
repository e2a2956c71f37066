"""Sampled programs give the exact traffic of kernels whose traffic can be worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.judging.modelling.conftest import Bench


def flows(entry: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [region["flows"][kind] for region in entry["traffic"]["regions"] if kind in region["flows"]]


def test_elementwise_kernel_moves_each_element_once(bench: Bench) -> None:
    count = 1_000_003
    (launch,) = bench.sample("add", (count,), (count,))["trace"]
    assert [flow["bytes"] for flow in flows(launch, "load")] == [4 * count, 4 * count]
    assert [flow["bytes"] for flow in flows(launch, "store")] == [4 * count]
    assert [flow["sectors"] for flow in flows(launch, "load")] == [125_001, 125_001]
    assert launch["traffic"]["operations"]["fp32"] == pytest.approx(977 * 1024)


def test_one_pass_softmax_reads_its_row_once(bench: Bench) -> None:
    (launch,) = bench.sample("softmax", (16384, 8192))["trace"]
    (load,), (store,) = flows(launch, "load"), flows(launch, "store")
    assert load["bytes"] == load["fresh"] * 32 == 16384 * 8192 * 4
    assert store["bytes"] == 16384 * 8192 * 4
    assert load["reuse"] == {}
    assert launch["traffic"]["phases"] == 16384


def test_three_pass_softmax_reads_its_row_three_times_and_afresh_once(bench: Bench) -> None:
    (launch,) = bench.sample("softmax_passes", (16384, 8192))["trace"]
    (load,) = flows(launch, "load")
    row_bytes = 16384 * 8192 * 4
    assert load["bytes"] == 3 * row_bytes
    assert load["fresh"] * 32 == row_bytes
    assert sum(load["reuse"].values()) * 32 == 2 * row_bytes
    assert launch["traffic"]["phases"] == 16384 * 3 * 8


def test_long_loops_are_sampled_without_changing_the_bytes(bench: Bench) -> None:
    (launch,) = bench.sample("softmax_passes", (512, 65536), BLOCK=256)["trace"]
    (load,), (store,) = flows(launch, "load"), flows(launch, "store")
    assert load["bytes"] == 3 * 512 * 65536 * 4
    assert store["bytes"] == 512 * 65536 * 4
    assert load["fresh"] * 32 == 512 * 65536 * 4


def test_matrix_product_counts_flops_and_operand_reads(bench: Bench) -> None:
    (launch,) = bench.sample("matmul", (4096, 4096), (4096, 4096))["trace"]
    loads = flows(launch, "load")
    assert [flow["bytes"] for flow in loads] == [4096 * 4096 * 4 * 32] * 2
    (dot,) = launch["traffic"]["dots"]
    assert dot["shape"] == [128, 128, 32] and dot["precision"] == "tf32"
    assert 2 * 128 * 128 * 32 * dot["count"] == pytest.approx(2 * 4096**3)


def test_neighbouring_programs_of_a_grouped_product_share_operands(bench: Bench) -> None:
    shapes = (4096, 4096), (4096, 4096)
    grouped = bench.sample("matmul", *shapes, GROUP=8)["trace"][0]["traffic"]["regions"]
    plain = bench.sample("matmul", *shapes, GROUP=1)["trace"][0]["traffic"]["regions"]
    at_64 = 6
    assert grouped[0]["window"][at_64] == 8 and grouped[1]["window"][at_64] == 8
    assert plain[0]["window"][at_64] == 2 and plain[1]["window"][at_64] == 32


def test_atomics_are_counted_apart(bench: Bench) -> None:
    zeros, launch = bench.sample("total", (1 << 20,))["trace"]
    assert zeros["op"] in ("zeros", "zero_", "fill_")
    (atomic,) = flows(launch, "atomic")
    assert atomic["elements"] == 256 and atomic["bytes"] == 1024


def test_autotuned_kernel_takes_its_first_configuration_and_heuristics(bench: Bench) -> None:
    (launch,) = bench.sample("scale", (1 << 20,))["trace"]
    constants = {entry["path"][0]: entry["value"] for entry in launch["constants"]}
    assert constants == {4: 512, 5: True}
    assert launch["options"]["num_warps"] == 2
    assert launch["grid"] == [2048, 1, 1]


def test_block_pointers_respect_their_boundaries(bench: Bench) -> None:
    (launch,) = bench.sample("transpose", (1000, 1200))["trace"]
    assert flows(launch, "load")[0]["bytes"] == 1000 * 1200 * 4
    assert flows(launch, "store")[0]["bytes"] == 1000 * 1200 * 4


def test_scattered_lanes_touch_a_sector_each(bench: Bench) -> None:
    (launch,) = bench.sample("strided", (1 << 20,), step=8)["trace"]
    (load,) = flows(launch, "load")
    assert load["bytes"] == (1 << 17) * 4
    assert load["sectors"] * 32 == (1 << 20) * 4


def test_a_loop_that_waits_for_data_ends_and_says_so(bench: Bench) -> None:
    reply = bench.sample("chase", (64,), dtype="int32")
    assert any("while loop" in note for note in reply["notes"])


def test_library_calls_stand_in_order_beside_launches(bench: Bench) -> None:
    reply = bench.sample("matmul_then_softmax", (512, 512), (512, 512))
    assert [entry.get("op", entry.get("kernel")) for entry in reply["trace"]] == ["matmul_kernel", "_softmax"]
    assert reply["written"] == 1.0


def test_library_calls_know_their_bytes_and_flops(bench: Bench) -> None:
    product, relu = bench.sample("library_only", (256, 512), (128, 512))["trace"]
    assert (product["op"], product["flops"]) == ("mm", 2 * 256 * 512 * 128)
    assert product["read_bytes"] == (256 + 128) * 512 * 4
    assert relu["read_bytes"] == relu["write_bytes"] == 256 * 128 * 4


def test_host_code_is_answered_as_on_a_device(bench: Bench) -> None:
    reply = bench.sample("host_questions", (100, 100))
    assert "failure" not in reply
    assert [entry.get("op", entry.get("kernel")) for entry in reply["trace"]] == ["zeros", "add_kernel"]


def test_counts_are_the_same_every_time(bench: Bench) -> None:
    first = bench.sample("matmul", (1111, 999), (999, 777))
    assert bench.sample("matmul", (1111, 999), (999, 777)) == first
