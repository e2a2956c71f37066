"""Recorded launches compile ahead of time; what does not compile is explained in one line."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.judging.modelling.conftest import KERNELS, Bench

HEADER = "import torch\nimport triton\nimport triton.language as tl\n\n"


def launch_of(name: str, **changes: Any) -> dict[str, Any]:
    """A launch of a kernel `name(x_ptr, BLOCK)`."""
    launch = {
        "kind": "launch",
        "key": name,
        "kernel": name,
        "qualname": name,
        "grid": [1, 1, 1],
        "signature": {"x_ptr": "*fp32", "BLOCK": "constexpr"},
        "constants": [{"path": [1], "value": 128}],
        "attributes": [],
        "options": {},
    }
    return launch | changes


def kernel(body: str) -> str:
    return HEADER + "@triton.jit\ndef broken(x_ptr, BLOCK: tl.constexpr):\n" + body


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90", "sm_100"])
def test_resources_of_every_architecture_are_known(bench: Bench, arch: str) -> None:
    trace = bench.sample("matmul", (512, 512), (512, 512))["trace"]
    answer = bench.compile(trace, arch=arch)
    assert answer["error"] is None
    (found,) = answer["kernels"]
    assert found["arch"] == arch
    assert found["registers"] >= 32 and found["shared_bytes"] > 0
    assert found["num_warps"] == 8
    units = {"sm_80": "mma", "sm_89": "mma", "sm_90": "wgmma", "sm_100": "tcgen05"}
    assert found["dot"] == {"unit": units[arch], "type": "tf32"}


def test_wide_accesses_show_in_the_code(bench: Bench) -> None:
    aligned = bench.compile(bench.sample("add", (1 << 20,), (1 << 20,))["trace"])["kernels"][0]
    odd = bench.compile(bench.sample("strided", (3 * 1001 * 1024,), step=3)["trace"])["kernels"][0]
    assert set(aligned["load_bytes"]) == {"16"}
    assert set(odd["load_bytes"]) == {"4"}


def test_precision_of_products_shows_in_the_code(bench: Bench) -> None:
    shapes = (512, 512), (512, 512)
    exact = bench.compile(bench.sample("matmul", *shapes, PRECISION="ieee", BM=32, BN=32)["trace"])["kernels"][0]
    half = bench.compile(bench.sample("matmul", *shapes, dtype="bfloat16")["trace"])["kernels"][0]
    assert exact["dot"] is None and exact["mix"]["fp32"] > 0
    assert half["dot"]["type"] == "bf16"


def test_spills_are_seen(bench: Bench) -> None:
    trace = bench.sample("softmax", (16, 16384), num_warps=1)["trace"]
    assert bench.compile(trace)["kernels"][0]["spills"] > 0


def test_the_same_kernel_is_compiled_once_and_fingerprints_see_the_code(bench: Bench) -> None:
    twice = bench.sample("add_twice", (1 << 20,), (1 << 20,))["trace"]
    first, second = bench.compile(twice), bench.compile(twice)
    assert len(twice) == 2 and len(first["kernels"]) == 1
    assert first["fingerprint"] == second["fingerprint"] is not None
    renamed = KERNELS.read_text().replace("add_kernel", "sum_kernel")
    relabelled = [launch | {"kernel": "sum_kernel", "qualname": "sum_kernel"} for launch in twice]
    assert bench.compile(relabelled, source=renamed)["fingerprint"] == first["fingerprint"]
    narrow = bench.sample("add_twice", (1 << 20,), (1 << 20,), BLOCK=512)["trace"]
    assert bench.compile(narrow)["fingerprint"] != first["fingerprint"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("    tl.store(x_ptr + tl.arange(0, 100), 0.0)\n", ["line 7", "power of 2"]),
        ("    if 0 < tl.program_id(0) < 5:\n        tl.store(x_ptr, 0.0)\n", ["line 7", "comparison"]),
        ("    tl.store(x_ptr, tl.nonsense(1.0))\n", ["line 7", "nonsense"]),
        ("    tl.store(x_ptr, missing)\n", ["line 7", "missing"]),
        ("    tl.static_assert(BLOCK == 3)\n    tl.store(x_ptr, 0.0)\n", ["line 7", "BLOCK == 3"]),
        (
            "    x = tl.zeros((64, 32), tl.float32)\n    tl.store(x_ptr, tl.sum(tl.dot(x, x)))\n",
            ["line 8", "reduction dimensions"],
        ),
    ],
)
def test_what_does_not_compile_is_said_in_one_line(bench: Bench, body: str, words: list[str]) -> None:
    error = bench.compile([launch_of("broken")], source=kernel(body))["error"]
    assert error["kernel"] == "broken"
    assert error["message"].startswith("kernel broken does not compile")
    assert "\n" not in error["message"]
    for word in words:
        assert word in error["message"], error


def test_a_mistake_in_a_called_function_names_that_line(bench: Bench) -> None:
    source = HEADER + (
        "@triton.jit\ndef part(x):\n    return tl.nonsense(x)\n\n\n"
        "@triton.jit\ndef broken(x_ptr, BLOCK: tl.constexpr):\n    tl.store(x_ptr, part(1.0))\n"
    )
    error = bench.compile([launch_of("broken")], source=source)["error"]
    assert "line 7" in error["message"] and "nonsense" in error["message"]


def test_too_much_shared_memory_is_refused(bench: Bench) -> None:
    trace = bench.sample("matmul", (4096, 4096), (4096, 4096), BK=128, num_stages=4)["trace"]
    message = bench.compile(trace)["error"]["message"]
    assert "shared memory" in message and "232,448" in message


def test_a_module_that_cannot_be_imported_is_named_as_such(bench: Bench) -> None:
    error = bench.compile([launch_of("broken")], source="import triton\nraise ValueError('no luck')\n")["error"]
    assert error["message"] == "the module cannot be imported: ValueError: no luck"


def test_constants_of_every_kind_reach_the_compiler(bench: Bench) -> None:
    source = HEADER + (
        "@triton.jit\ndef relu(x):\n    return tl.maximum(x, 0.0)\n\n\n"
        "@triton.jit\ndef kernel(\n    x_ptr, ACTIVATION: tl.constexpr, TYPE: tl.constexpr,"
        "FLAG: tl.constexpr, LOW: tl.constexpr\n):\n"
        "    x = ACTIVATION(tl.load(x_ptr).to(TYPE)).to(tl.float32)\n"
        "    tl.store(x_ptr, tl.maximum(x, LOW) if FLAG is None else x)\n"
    )
    launch = launch_of("kernel") | {
        "signature": {"x_ptr": "*fp32"} | dict.fromkeys(("ACTIVATION", "TYPE", "FLAG", "LOW"), "constexpr"),
        "constants": [
            {"path": [1], "value": {"function": "relu", "module": "candidate"}},
            {"path": [2], "value": {"dtype": "fp16"}},
            {"path": [3], "value": None},
            {"path": [4], "value": {"float": "-inf"}},
        ],
    }
    answer = bench.compile([launch], source=source)
    assert answer["error"] is None and answer["kernels"][0]["registers"] > 0
