"""Memory without contents holds nonsense, and writing beyond an allocation is noticed where it has margins."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from engine.judging.workers.conditions import Allocations, Overrun
from engine.judging.workers.exchange import MARGIN, lay_out


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.complex64])
def test_memory_without_contents_is_not_a_number(dtype: torch.dtype) -> None:
    with Allocations("nan", margins=False):
        made = [torch.empty(4, dtype=dtype), torch.empty_like(torch.ones(4, dtype=dtype))]
    assert all(bool(torch.isnan(tensor.to(torch.complex64)).all()) for tensor in made)


@pytest.mark.parametrize("filling", ["nan", "huge"])
def test_integers_without_contents_are_as_large_as_they_can_be(filling: str) -> None:
    with Allocations(filling, margins=True):
        made = torch.empty(4, dtype=torch.int32)
    assert made.tolist() == [2**31 - 1] * 4


def test_harmless_filling_is_an_index_that_exists() -> None:
    with Allocations("harmless", margins=False):
        assert torch.empty(2, dtype=torch.int64).tolist() == [0, 0]
        assert torch.empty(2).tolist()[0] > 1e29


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(7, dtype=torch.float16),
        lambda: torch.full((2, 3), 4),
        lambda: torch.ones_like(torch.empty(2, 8, 3, 3, memory_format=torch.channels_last), dtype=torch.bool),
    ],
)
def test_margins_change_neither_shape_nor_contents(make: Callable[[], torch.Tensor]) -> None:
    plain = make()
    with Allocations("nan", margins=True) as allocations:
        guarded = make()
    assert (guarded.stride(), guarded.dtype) == (plain.stride(), plain.dtype)
    assert guarded.data_ptr() % 16 == 0
    assert torch.equal(guarded, plain)
    guarded.zero_()
    allocations.check()


@pytest.mark.parametrize(("place", "where"), [(12, "behind"), (-1, "before")])
@pytest.mark.parametrize("filling", ["nan", "huge"])
def test_a_write_beyond_an_allocation_is_an_overrun(place: int, where: str, filling: str) -> None:
    with Allocations(filling, margins=True) as allocations:
        tensor = torch.empty(12)
    beyond = tensor.as_strided((1,), (1,), tensor.storage_offset() + place)
    beyond.fill_(1.5)
    with pytest.raises(Overrun, match=f"bytes {where} a tensor of 48 bytes"):
        allocations.check()


def test_the_layout_leaves_margins_free_before_and_behind_every_tensor() -> None:
    tensors = [torch.empty(100), torch.empty(3, 5, dtype=torch.float16)]
    slots, size = lay_out(tensors, MARGIN)
    ends = [0, *(slot.offset + slot.bytes for slot in slots)]
    starts = [*(slot.offset for slot in slots), size]
    assert all(start - end >= MARGIN for start, end in zip(starts, ends, strict=True))
    assert all(slot.offset % 256 == 0 for slot in slots)
