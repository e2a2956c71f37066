"""The tree policy of AdaExplore: UCB1 in which expanding a node competes with descending into it.

A choice is a pure function of the snapshot, the settings and the generator it is given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from engine.records import Step
from engine.search.snapshot import ROOT, Snapshot
from engine.settings import PolicySettings


@dataclass(frozen=True, slots=True)
class Choice:
    """Where to expand (`ROOT` or a candidate's number), by which step, and the terms that led there."""

    parent: int
    step: Step
    why: Mapping[str, Any]


def generator(seed: int, expansion: int | str) -> Random:
    """The generator of one expansion: the same seed and number give the same draws after any interruption."""
    return Random(f"kernelgrove:{seed}:{expansion}")


def choose(snapshot: Snapshot, settings: PolicySettings, random: Random) -> Choice | None:
    """Picks the next expansion, or None when nothing can be expanded now."""
    number = ROOT
    path: list[dict[str, Any]] = []
    while True:
        arms = _arms(snapshot, settings, number)
        if not arms:
            return None
        best = max(arms, key=lambda arm: (arms[arm]["score"], arm is None, -(arm or 0)))
        path.append({"at": number, "took": best, "arms": [{"arm": arm, **terms} for arm, terms in arms.items()]})
        if best is None:
            break
        number = best
    step, reason = _step(snapshot, settings, number, random)
    return Choice(number, step, {"path": path, "step": reason})


def _arms(snapshot: Snapshot, settings: PolicySettings, number: int) -> dict[int | None, dict[str, float]]:
    """The arms at a node with their terms; None is "expand here".

    A child scores (1-a)*mean + a*max of its subtree plus c*sqrt(ln N / n); expanding scores the best value
    among the children plus c*sqrt(ln N / k^2), for N visits of the node and k children.
    """
    visits = max(snapshot.statistics[number].visits, 1)
    children = snapshot.children.get(number, ())
    arms: dict[int | None, dict[str, float]] = {}
    best_value = 0.0
    for child in children:
        statistics = snapshot.statistics[child]
        value = settings.max_weight * statistics.best + (1 - settings.max_weight) * statistics.mean
        best_value = max(best_value, value)
        if child in snapshot.growable:
            bonus = settings.exploration * math.sqrt(math.log(visits) / statistics.visits)
            arms[child] = {"value": value, "bonus": bonus, "score": value + bonus}
    if snapshot.steps_left(number):
        if children:
            bonus = settings.exploration * math.sqrt(math.log(visits) / len(children) ** 2)
            arms[None] = {"value": best_value, "bonus": bonus, "score": best_value + bonus}
        else:
            # The only arm there is: nothing to weigh it against.
            arms[None] = {"value": 0.0, "bonus": 0.0, "score": 0.0}
    return arms


def _step(snapshot: Snapshot, settings: PolicySettings, number: int, random: Random) -> tuple[Step, str]:
    """Structural at the root, at a node with enough local children, or by chance; else local."""
    if number == ROOT:
        return Step.STRUCTURAL, "at the root"
    drawn = random.random()
    left = snapshot.steps_left(number)
    if len(left) == 1:
        return left[0], f"nothing else is left to offer for {number}"
    locals_ = sum(snapshot.nodes[child].step is Step.LOCAL for child in snapshot.children.get(number, ()))
    if locals_ >= settings.local_limit:
        return Step.STRUCTURAL, f"{number} already has {locals_} local children"
    if drawn < settings.structural_probability:
        return Step.STRUCTURAL, f"by chance ({drawn:.3f} < {settings.structural_probability})"
    return Step.LOCAL, f"{number} has {locals_} local children"
