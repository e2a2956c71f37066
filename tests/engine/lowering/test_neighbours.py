"""Local steps from a set of parameters."""

from __future__ import annotations

from engine.lowering.client import StructureSummary
from engine.lowering.neighbours import neighbours

STRUCTURE = StructureSummary(
    name="softmax/one_pass",
    idea="Each program holds one row.",
    defaults={"softmax_kernel.BLOCK_ROWS": 2, "softmax_kernel.num_warps": 4, "softmax_kernel.hints": "none"},
    choices={
        "softmax_kernel.BLOCK_ROWS": (1, 2, 4, 8),
        "softmax_kernel.num_warps": (1, 2, 4, 8, 16),
        "softmax_kernel.hints": ("none", "evict_first"),
    },
)


def test_adjacent_choices_come_first() -> None:
    ideas = [n.idea for n in neighbours(STRUCTURE, STRUCTURE.defaults)]
    assert ideas[:5] == [
        "softmax_kernel.BLOCK_ROWS 2 -> 4",
        "softmax_kernel.BLOCK_ROWS 2 -> 1",
        "softmax_kernel.num_warps 4 -> 8",
        "softmax_kernel.num_warps 4 -> 2",
        "softmax_kernel.hints none -> evict_first",
    ]


def test_blocks_and_warps_move_together() -> None:
    ideas = [n.idea for n in neighbours(STRUCTURE, STRUCTURE.defaults)]
    assert "softmax_kernel.BLOCK_ROWS 2 -> 4, softmax_kernel.num_warps 4 -> 8" in ideas
    assert "softmax_kernel.BLOCK_ROWS 2 -> 1, softmax_kernel.num_warps 4 -> 2" in ideas


def test_every_other_choice_is_one_step_away_and_none_is_repeated() -> None:
    found = neighbours(STRUCTURE, STRUCTURE.defaults)
    sets = [tuple(sorted(n.parameters.items())) for n in found]
    assert len(set(sets)) == len(sets) == 3 + 4 + 1 + 2
    assert all(n.parameters != STRUCTURE.defaults for n in found)


def test_the_order_is_the_same_each_time() -> None:
    assert neighbours(STRUCTURE, STRUCTURE.defaults) == neighbours(STRUCTURE, dict(STRUCTURE.defaults))


def test_a_value_that_is_no_choice_has_only_far_neighbours() -> None:
    found = neighbours(STRUCTURE, {**STRUCTURE.defaults, "softmax_kernel.BLOCK_ROWS": 3})
    rows = [n.idea for n in found if n.idea.startswith("softmax_kernel.BLOCK_ROWS")]
    assert rows == [f"softmax_kernel.BLOCK_ROWS 3 -> {value}" for value in (1, 2, 4, 8)]
