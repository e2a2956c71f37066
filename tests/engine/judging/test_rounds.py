"""Rounds: who plays when, what is played again, and what the rounds say."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from engine.judging.workers.device_state import DeviceState
from engine.judging.workers.rounds import MOST_REPEATED, Block, Rounds


class Script:
    """Plays blocks in order and writes down what happens."""

    def __init__(self, **sides: list[Block]) -> None:
        self.happened: list[str] = []
        self.sides = {name: iter(blocks) for name, blocks in sides.items()}

    def rounds(self, seed: int = 1) -> Rounds:
        plays = {name: self.play(name, blocks) for name, blocks in self.sides.items()}
        return Rounds(plays, lambda: self.happened.append("fresh"), random.Random(seed))

    def play(self, name: str, blocks: Iterator[Block]) -> Callable[[], Block]:
        def block() -> Block:
            self.happened.append(name)
            return next(blocks)

        return block


def at(clock: float, time_us: float = 10.0) -> Block:
    return Block(time_us, 0, DeviceState(sm_mhz=clock))


def test_each_round_has_fresh_contents_and_every_side_once_in_an_order_drawn_anew() -> None:
    script = Script(mine=[Block(5.0)] * 40, theirs=[Block(10.0)] * 40)
    rounds = script.rounds()
    rounds.play(40)
    played = [tuple(script.happened[index : index + 3]) for index in range(0, 120, 3)]
    assert {first for first, *_ in played} == {"fresh"}
    orders = [order for _, *order in played]
    assert orders.count(["mine", "theirs"]) + orders.count(["theirs", "mine"]) == 40
    assert 10 < orders.count(["mine", "theirs"]) < 30
    assert rounds.ratio("theirs", "mine").value == pytest.approx(2.0)


def test_going_on_keeps_what_was_played() -> None:
    script = Script(mine=[Block(float(time)) for time in range(1, 8)])
    rounds = script.rounds()
    rounds.play(3)
    rounds.play(7)
    assert rounds.times_us("mine") == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]


def test_a_round_on_a_slow_clock_is_played_again() -> None:
    script = Script(mine=[at(1900), at(1900, 1.0), at(1500, 99.0), at(1900, 2.0)], theirs=[at(1900)] * 4)
    rounds = script.rounds()
    rounds.play(3)
    assert (rounds.count, rounds.repeated) == (3, 1)
    assert rounds.times_us("mine") == [10.0, 1.0, 2.0]
    assert rounds.slow() == []


def test_a_candidate_that_always_slows_the_clock_down_is_measured_so() -> None:
    script = Script(mine=[at(1400)] * 3, theirs=[at(1980)] * 3)
    rounds = script.rounds()
    rounds.play(3)
    assert rounds.repeated == 0


def test_a_clock_that_stays_low_does_not_keep_the_device_for_ever() -> None:
    clocks = [1900, 1900, 1900, *[1000] * 20]
    script = Script(mine=[at(clock) for clock in clocks])
    rounds = script.rounds()
    rounds.play(5)
    assert rounds.repeated == MOST_REPEATED
    assert rounds.slow() == [3, 4]


def test_blocks_are_kept_with_what_the_device_went_through() -> None:
    script = Script(mine=[Block(5.0, 7, DeviceState(1980.0, 3201.0, 41.0, 512.5, 60.1, ("power cap",)))])
    rounds = script.rounds()
    rounds.play(1)
    assert rounds.to_json() == [
        {
            "round": 1,
            "side": "mine",
            "time_us": 5.0,
            "sm_mhz": 1980.0,
            "memory_mhz": 3201.0,
            "temperature_c": 41.0,
            "power_w": 512.5,
            "energy_j": 60.1,
            "throttled": ("power cap",),
        }
    ]
    assert rounds.peak_bytes("mine") == 7
