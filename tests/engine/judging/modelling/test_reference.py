"""What the reference of every built-in task costs at its large form is counted without its memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import engine
from engine.judging.modelled_time import reference_times_us
from engine.judging.workers.torch_calls import count_reference

SCRIPT = """
import json, sys
from engine.judging.workers.torch_calls import count_reference
answers = {}
for path in sys.argv[1:]:
    namespace = {}
    exec(open(path).read(), namespace)
    counted = count_reference(lambda: namespace["Model"](*namespace["get_init_inputs"]()), namespace["get_inputs"])
    answers[path.rpartition("/")[2].removesuffix(".py")] = counted
assert "torch._dynamo" not in sys.modules
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def counted() -> dict[str, dict[str, object]]:
    folder = Path(engine.__file__).parent / "tasks" / "builtin"
    paths = sorted(str(path) for path in folder.glob("*.py") if "class Model" in path.read_text())
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *paths],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        cwd=folder.parents[2],
    )
    answers: dict[str, dict[str, object]] = json.loads(done.stdout)
    return answers


def test_every_task_has_calls_and_a_bound_below_them(counted: dict[str, dict[str, object]]) -> None:
    assert len(counted) >= 8
    for name, answer in counted.items():
        times = reference_times_us(answer["calls"], answer["bound"], "sm_90")  # type: ignore[arg-type]
        assert 0 < times["bound"] <= times["eager"], name


def test_bytes_of_the_bound_are_inputs_parameters_and_outputs(counted: dict[str, dict[str, object]]) -> None:
    assert counted["softmax"]["bound"] == {
        "bytes": 2 * 16384 * 8192 * 4,
        "flops": 0.0,
        "operations": 0.0,
        "dtype": "float32",
    }
    linear = counted["linear_gelu"]["bound"]
    assert linear["bytes"] == (3 * 4096 * 4096 + 4096) * 4  # type: ignore[index]
    assert linear["flops"] == 2.0 * 4096**3  # type: ignore[index]


class _Changes(nn.Module):
    """Changes its first argument in place, as an operator that it is given does."""

    def __init__(self, change: Callable[..., object]) -> None:
        super().__init__()
        self.change = change

    def forward(self, *arguments: torch.Tensor) -> None:
        self.change(*arguments)


@pytest.mark.parametrize(
    ("change", "moved"),
    [
        # A row of 64 float32 for each of 8 places is read and written; what is added to is read as well.
        (lambda x, rows, at: x.index_put_((at,), rows), 8 * 8 + 2 * 8 * 64 * 4),
        (lambda x, rows, at: x.index_put_((at,), rows, accumulate=True), 8 * 8 + 3 * 8 * 64 * 4),
        (lambda x, rows, at: x.index_copy_(0, at, rows), 8 * 8 + 2 * 8 * 64 * 4),
        (lambda x, rows, at: x.index_add_(0, at, rows), 8 * 8 + 3 * 8 * 64 * 4),
        (lambda x, rows, at: x.scatter_(0, at[:, None], rows), 8 * 8 + 8 * 64 * 4 + 8 * 4),
        (lambda x, rows, at: x[:8].copy_(rows), 2 * 8 * 64 * 4),
        (lambda x, rows, at: x.add_(1.0), 2 * 1000 * 64 * 4),
    ],
    ids=["index_put", "index_put_add", "index_copy", "index_add", "scatter", "copy_into_a_part", "whole"],
)
def test_what_is_changed_in_place_counts_as_far_as_it_is_changed(change: Callable[..., object], moved: int) -> None:
    counted = count_reference(
        lambda: _Changes(change),
        lambda: [torch.empty(1000, 64), torch.empty(8, 64), torch.empty(8, dtype=torch.int64)],
    )
    assert counted["bound"]["bytes"] == moved
