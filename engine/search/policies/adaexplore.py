"""The tree policy of AdaExplore: UCB1 in which expanding a node competes with descending into it.

With `PAPER_POLICY` it is the published one (arXiv 2604.16625). Beyond that, a new correct structure is owed
refinements before its first time is held against it: until then it is valued at what they usually add. And the chance
of a structural step follows how the component fares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random
from typing import Any

from engine.records import Step
from engine.search.choice import Choice
from engine.search.snapshot import ROOT, Snapshot
from engine.settings import PolicySettings

TOLD_ARMS = 6
"""How many arms of a node are written down with a choice; a node may have thousands."""

LIKELIEST = 0.9
"""The highest chance of a structural step, however long a component has stagnated."""

OPTIMISM = 0.3
"""What refinements are taken to add to the reward of a structure while nobody knows."""

_ALIKE = 0.1
"""A structure no further than this from the pool is a variation, and is owed nothing."""


def choose(snapshot: Snapshot, settings: PolicySettings, random: Random) -> Choice | None:
    """Picks the next expansion, or None when nothing can be expanded now."""
    if not snapshot.can_grow(ROOT):
        return None
    path: list[Mapping[str, Any]] = []
    match settings.selection:
        case "random":
            number = random.choice(_growing(snapshot))
        case "greedy":
            number = _greediest(snapshot)
        case _:
            number, path = _descend(snapshot, settings)
    step, reason = _step(snapshot, settings, number, random)
    return Choice(number, step, {"selection": settings.selection, "path": path, "step": reason})


def _growing(snapshot: Snapshot) -> list[int]:
    return [number for number in (ROOT, *snapshot.nodes) if snapshot.steps_left(number)]


def _greediest(snapshot: Snapshot) -> int:
    return max(_growing(snapshot), key=lambda number: (_reward(snapshot, number), -number))


def _reward(snapshot: Snapshot, number: int) -> float:
    return -1.0 if number == ROOT else snapshot.nodes[number].reward or 0.0


# Selection


def _descend(snapshot: Snapshot, settings: PolicySettings) -> tuple[int, list[Mapping[str, Any]]]:
    """Follows the best arm down from the root until expanding wins."""
    number = ROOT
    path: list[Mapping[str, Any]] = []
    gain = _usual_gain(snapshot, settings) if settings.owed_refinements else 0.0
    while True:
        arms = _arms(snapshot, settings, number, gain)
        # Of equals a child wins over expanding (as published), and of children the oldest.
        best = max(arms, key=lambda arm: (arms[arm]["score"], arm is not None, -(arm or 0)))
        path.append(_told(number, best, arms))
        if best is None:
            return number, path
        number = best


def _told(number: int, took: int | None, arms: Mapping[int | None, Mapping[str, Any]]) -> Mapping[str, Any]:
    leading = sorted(arms, key=lambda arm: (arm != took, arm is not None, -arms[arm]["score"]))
    told = [{"arm": arm, **arms[arm]} for arm in leading[:TOLD_ARMS]]
    others = {"others": len(arms) - len(told)} if len(arms) > len(told) else {}
    return {"at": number, "took": took, "arms": told, **others}


def _arms(snapshot: Snapshot, settings: PolicySettings, number: int, gain: float) -> dict[int | None, dict[str, Any]]:
    """The arms at a node with their terms; None is "expand here".

    A child scores (1-a)*mean + a*max of its subtree plus c*sqrt(ln N / n); expanding scores the best value
    among the children plus c*sqrt(ln N / k^2), for N visits of the node and k children. A structure that is owed
    refinements is worth at least its own reward and what they usually add.
    """
    visits = max(snapshot.statistics[number].visits, 1)
    children = snapshot.children.get(number, ())
    values = {child: _value(snapshot, settings, child) for child in children}
    best_value = max(values.values(), default=0.0)
    arms: dict[int | None, dict[str, Any]] = {}
    for child, value in values.items():
        if not snapshot.can_grow(child):
            continue
        bonus = settings.exploration * math.sqrt(math.log(visits) / snapshot.statistics[child].visits)
        arms[child] = {"value": value, "bonus": bonus, "score": value + bonus}
        if _owed(snapshot, settings, child):
            hoped = max(value, (snapshot.nodes[child].reward or 0.0) + gain)
            arms[child] |= {"value": hoped, "score": hoped + bonus, "owed": True}
    if snapshot.steps_left(number):
        # Without children it is the only arm there is: nothing to weigh it against.
        bonus = settings.exploration * math.sqrt(math.log(visits) / len(children) ** 2) if children else 0.0
        arms[None] = {"value": best_value, "bonus": bonus, "score": best_value + bonus}
    return arms


def _value(snapshot: Snapshot, settings: PolicySettings, number: int) -> float:
    statistics = snapshot.statistics[number]
    return settings.max_weight * statistics.best + (1 - settings.max_weight) * statistics.mean


def _owed(snapshot: Snapshot, settings: PolicySettings, number: int) -> bool:
    """Whether a correct structure has not had its first refinements yet."""
    node = snapshot.nodes[number]
    return (
        node.step is Step.STRUCTURAL
        and node.correct
        and (node.novelty is None or node.novelty > _ALIKE)
        and len(snapshot.local_children(number)) < settings.owed_refinements
        and Step.LOCAL in snapshot.steps_left(number)
    )


def _usual_gain(snapshot: Snapshot, settings: PolicySettings) -> float:
    """How much the refinements that are owed have added to the reward of correct structures, on average."""
    gains = []
    for root, component in snapshot.components.items():
        first = snapshot.nodes[root]
        if not first.correct or component.judged <= settings.owed_refinements:
            continue
        early = [snapshot.nodes[member].reward or 0.0 for member in component.members[: settings.owed_refinements + 1]]
        gains.append(max(early) - (first.reward or 0.0))
    return sum(gains) / len(gains) if gains else OPTIMISM


# The step


def _step(snapshot: Snapshot, settings: PolicySettings, number: int, random: Random) -> tuple[Step, str]:
    """Structural at the root, at a node with enough local children, or by chance; else local."""
    if number == ROOT:
        return Step.STRUCTURAL, "at the root"
    drawn = random.random()
    left = snapshot.steps_left(number)
    if len(left) == 1:
        return left[0], f"nothing else may be asked for at {number}"
    locals_ = len(snapshot.local_children(number))
    if settings.selection == "ucb" and _owed(snapshot, settings, number):
        return Step.LOCAL, f"the structure {number} is owed {settings.owed_refinements} refinements, it has {locals_}"
    if locals_ >= settings.local_limit:
        return Step.STRUCTURAL, f"{number} already has {locals_} local children"
    chance, because = _structural_chance(snapshot, settings, number)
    if drawn < chance:
        return Step.STRUCTURAL, f"by chance ({drawn:.3f} < {chance:.3g}{because})"
    return Step.LOCAL, f"{number} has {locals_} local children ({drawn:.3f} >= {chance:.3g}{because})"


def _structural_chance(snapshot: Snapshot, settings: PolicySettings, number: int) -> tuple[float, str]:
    """The chance of a structural step, and the words for why it is not the usual one.

    It is the set one; the component's last improvement being its latest member lowers it, each member since
    then raises it, the more so the higher `stagnation`.
    """
    chance, weight = settings.structural_probability, settings.stagnation
    component = snapshot.components[snapshot.component_of[number]]
    if not weight or component.judged < 2:
        return chance, ""
    if component.since_best == 0:
        return chance / (1 + weight), ", its component improves"
    grown = min(chance * (1 + weight * (component.since_best - 1)), max(LIKELIEST, chance))
    return grown, f", its component has not improved for {component.since_best}"
