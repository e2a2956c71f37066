"""How different two kernels are in structure: what counts, and what does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.search.novelty import distance, novelty, structure_of

ONE_PASS = """
import torch
import triton
import triton.language as tl

@triton.jit
def softmax(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns)
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * columns + offsets, x / tl.sum(x, axis=0), mask=offsets < columns)

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        y = torch.empty_like(x)
        softmax[(x.shape[0],)](x, y, x.shape[1], BLOCK=1024, num_warps=4)
        return y
"""
RENAMED = ONE_PASS.replace("softmax", "rows").replace("1024", "4096").replace("num_warps=4", "num_warps=16")
LOOPED = ONE_PASS.replace(
    "    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns)\n",
    "    for start in range(0, columns, BLOCK):\n"
    "        x = tl.load(x_ptr + row * columns + start + offsets, mask=start + offsets < columns)\n",
)
LIBRARY = ONE_PASS.replace(
    "softmax[(x.shape[0],)](x, y, x.shape[1], BLOCK=1024, num_warps=4)", "y = torch.softmax(x, -1)"
)
TWO_DIMENSIONAL = ONE_PASS.replace("(x.shape[0],)", "(x.shape[0], 2)").replace("program_id(0)", "program_id(1)")


def test_names_sizes_and_launch_options_do_not_count() -> None:
    assert structure_of(ONE_PASS) == structure_of(RENAMED)


@pytest.mark.parametrize("other", [LOOPED, LIBRARY, TWO_DIMENSIONAL])
def test_loops_libraries_and_grids_count(other: str) -> None:
    assert 0.0 < distance(structure_of(ONE_PASS), structure_of(other)) < 1.0


def test_the_precision_of_a_product_counts() -> None:
    product = ONE_PASS.replace("tl.sum(x, axis=0)", "tl.dot(x, x, input_precision='ieee')")
    rounded = product.replace("ieee", "tf32")
    assert 0.0 < distance(structure_of(product), structure_of(rounded)) < 0.2


def test_novelty_is_the_distance_from_the_nearest_and_whole_without_any() -> None:
    one, looped, library = map(structure_of, (ONE_PASS, LOOPED, LIBRARY))
    assert novelty(one, []) == 1.0
    assert novelty(one, [looped, one]) == 0.0
    assert novelty(one, [looped, library]) == min(distance(one, looped), distance(one, library))


@pytest.mark.parametrize("text", ["", "def broken(:\n", "x = '\x00'\n", "(" * 5000])
def test_what_is_no_python_has_no_structure(text: str) -> None:
    assert structure_of(text) == {}


structures = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 4))


@given(structures, structures, structures)
def test_distance_is_a_metric(one: dict[str, int], two: dict[str, int], three: dict[str, int]) -> None:
    assert distance(one, one) == 0.0
    assert distance(one, two) == distance(two, one)
    assert 0.0 <= distance(one, two) <= 1.0
    assert (distance(one, two) == 0.0) == (one == two)
    assert distance(one, three) <= distance(one, two) + distance(two, three) + 1e-12
