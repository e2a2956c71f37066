"""Triton's own autotuner under a cap: what it tries, what it tells, and keeping to a choice made elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import OutOfResources

from engine.judging.workers import autotuning

MakeTuner = Callable[..., "Tuned"]


class Tuned:
    """An autotuner whose kernel writes down what it is launched with, and whose later trials are the faster ones."""

    def __init__(self, **options: Any) -> None:
        self.launched: list[Any] = []
        self._time = 100.0
        kernel = SimpleNamespace(run=self._run, fn=row_kernel)
        configs = [triton.Config({"BLOCK": 1 << n}, num_warps=n) for n in range(1, 9)]
        tuner: Any = Autotuner
        self.tuner = tuner(kernel, ["x", "n"], configs, ["n"], None, None, do_bench=self._bench, **options)

    def _run(self, *args: Any, **kwargs: Any) -> None:
        self.launched.append(kwargs)

    def _bench(self, call: Callable[[], None], quantiles: Any) -> list[float]:
        call()
        self._time -= 1.0
        return [self._time] * 3

    def __call__(self, n: int) -> None:
        self.tuner.run(torch.zeros(4), n, grid=(1,), warmup=False)


def row_kernel() -> None:
    """Gives its name."""


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Autotuner, "__init__", Autotuner.__init__)
    monkeypatch.setattr(Autotuner, "prune_configs", Autotuner.prune_configs)
    monkeypatch.setattr(Autotuner, "_bench", Autotuner._bench)
    monkeypatch.setattr(Autotuner, "do_bench", Autotuner.do_bench)
    monkeypatch.setattr(autotuning, "_Tuning", type("_Tuning", (autotuning._Tuning,), {}))
    monkeypatch.setattr(autotuning, "_tuners", [])
    monkeypatch.setattr(autotuning, "_frozen", {})
    autotuning.install(3)


def test_no_more_configurations_are_tried_than_allowed_and_the_choice_is_told() -> None:
    tuned = Tuned()
    tuned(100)
    assert [launch["BLOCK"] for launch in tuned.launched] == [2, 4, 8, 8]
    (choice,) = autotuning.chosen()
    assert (choice["kernel"], choice["key"], choice["of"]) == ("row_kernel", ["100", "torch.float32"], 8)
    assert (choice["config"]["BLOCK"], choice["config"]["num_warps"]) == (8, 3)
    assert autotuning.checked(autotuning.chosen()) == [choice]


def test_a_candidates_own_pruning_comes_before_the_cap() -> None:
    last = {"early_config_prune": lambda configs, nargs, **_: configs[-1:]}
    tuned = Tuned(prune_configs_by=last)
    tuned(100)
    assert [launch["BLOCK"] for launch in tuned.launched] == [256, 256]


def test_a_fresh_process_keeps_to_what_was_chosen_for_the_same_key() -> None:
    config = {"BLOCK": 128, "num_warps": 7, "num_ctas": 1, "num_stages": 3}
    autotuning.freeze([{"kernel": "row_kernel", "key": ["100", "torch.float32"], "config": config, "of": 8}])
    tuned = Tuned()
    tuned(100)
    assert {launch["BLOCK"] for launch in tuned.launched} == {128}
    tuned(200)
    assert [launch["BLOCK"] for launch in tuned.launched][-1] == 8
    assert {tuple(choice["key"]): choice["config"]["BLOCK"] for choice in autotuning.chosen()} == {
        ("100", "torch.float32"): 128,
        ("200", "torch.float32"): 8,
    }


def test_a_choice_that_is_there_no_more_is_tuned_again() -> None:
    autotuning.freeze([{"kernel": "row_kernel", "key": ["100", "torch.float32"], "config": {"BLOCK": 3}, "of": 8}])
    tuned = Tuned()
    tuned(100)
    assert [launch["BLOCK"] for launch in tuned.launched] == [2, 4, 8, 8]


class Turns:
    """Writes down which turns are taken."""

    def __init__(self, events: list[Any]) -> None:
        self._events = events

    def begin(self, what: str) -> bool:
        self._events.append(what)
        return True

    def end(self, what: str) -> None:
        self._events.append(f"no longer {what}")

    @contextmanager
    def taken(self, what: str) -> Iterator[None]:
        self.begin(what)
        yield
        self.end(what)


def test_configurations_are_compiled_first_and_then_timed_in_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned = Tuned()
    turns: Any = Turns(tuned.launched)
    autotuning.take_turns(turns)
    monkeypatch.setattr(autotuning, "_time", tuned._bench)
    tuned(100)
    told = [
        event if isinstance(event, str) else (event["BLOCK"], event.get("warmup", False)) for event in tuned.launched
    ]
    assert told == [
        *("compiling", (2, True), (4, True), (8, True), "no longer compiling"),
        *("tuning", (2, False), (4, False), (8, False), "no longer tuning"),
        (8, False),
    ]


def test_a_turn_ends_when_every_configuration_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(call: Callable[[], None], quantiles: Any) -> list[float]:
        raise OutOfResources(1, 0, "shared memory")

    tuned = Tuned()
    turns: Any = Turns(tuned.launched)
    autotuning.take_turns(turns)
    monkeypatch.setattr(autotuning, "_time", fails)
    tuned(100)
    assert [event for event in tuned.launched if isinstance(event, str)][-1] == "no longer tuning"


def test_other_sizes_get_what_was_chosen_once_that_is_settled() -> None:
    tuned = Tuned()
    tuned(100)
    autotuning.settle()
    tuned(200)
    assert [launch["BLOCK"] for launch in tuned.launched] == [2, 4, 8, 8, 8, 8]


@pytest.mark.parametrize(
    "told",
    [
        None,
        {"kernel": "k"},
        [{"kernel": "k", "key": [], "config": {}}],
        [{"kernel": "k" * 1000, "key": [], "config": {}, "of": 1}],
        [{"kernel": "k", "key": [[]], "config": {}, "of": 1}],
        [{"kernel": "k", "key": [], "config": {"a": [1]}, "of": 1}],
        [{"kernel": "k", "key": [], "config": {str(n): n for n in range(100)}, "of": 1}],
    ],
)
def test_what_a_candidate_makes_up_is_dropped(told: Any) -> None:
    assert autotuning.checked(told) == []
