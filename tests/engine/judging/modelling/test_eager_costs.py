"""What PyTorch's own operators cost beyond one pass over their memory, in the order in which a device ranks them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from engine.judging.modelled_time import reference_times_us
from engine.judging.workers.torch_calls import count_reference

WIDE, IMAGE = (8192, 8192), (64, 64, 112, 112)


def eager_us(operation: Callable[..., Any], *shapes: tuple[int, ...]) -> float:
    class Model(torch.nn.Module):
        def forward(self, *inputs: torch.Tensor) -> Any:
            return operation(*inputs)

    counted = count_reference(Model, lambda: [torch.empty(shape, device="meta") for shape in shapes])
    return reference_times_us(counted["calls"], counted["bound"], "sm_90")["eager"]


def softmax_rows(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, 1)


@pytest.mark.parametrize(
    ("slower", "quicker"),
    [
        pytest.param(lambda: eager_us(softmax_rows, WIDE), lambda: eager_us(torch.clone, WIDE), id="softmax, copy"),
        pytest.param(
            lambda: eager_us(lambda x: torch.softmax(x, 1), IMAGE),
            lambda: 4 * eager_us(lambda x: torch.softmax(x, 3), IMAGE),
            id="softmax over channels, over columns",
        ),
        pytest.param(
            lambda: eager_us(lambda x: x.t().contiguous(), WIDE),
            lambda: 2 * eager_us(torch.clone, WIDE),
            id="transposed copy, copy",
        ),
        pytest.param(
            lambda: eager_us(lambda x: F.layer_norm(x, x.shape[1:]), IMAGE),
            lambda: 5 * eager_us(lambda x: F.group_norm(x, 8), IMAGE),
            id="few large groups, many small ones",
        ),
        pytest.param(
            lambda: eager_us(lambda x: F.max_pool2d(x, 3, 1, 1), IMAGE),
            lambda: 3 * eager_us(lambda x: F.max_pool2d(x, 2), IMAGE),
            id="overlapping windows, apart",
        ),
        pytest.param(
            lambda: eager_us(torch.add, WIDE, (8192,)),
            lambda: eager_us(lambda x: x + 1.0, WIDE),
            id="a repeated row, a number",
        ),
        pytest.param(
            lambda: eager_us(lambda x, w: F.conv2d(x, w, groups=64), IMAGE, (64, 1, 3, 3)),
            lambda: 3 * eager_us(torch.clone, IMAGE),
            id="depthwise convolution, copy",
        ),
    ],
)
def test_operators_are_ranked_as_on_a_device(slower: Callable[[], float], quicker: Callable[[], float]) -> None:
    assert slower() > quicker()


def test_normalisation_with_running_statistics_is_elementwise() -> None:
    def norm(training: bool) -> float:
        return eager_us(lambda x, m, v: F.batch_norm(x, m.clone(), v.clone(), training=training), IMAGE, (64,), (64,))

    assert norm(True) > 3 * norm(False)
