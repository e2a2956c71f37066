"""The tree policy of AdaExplore: UCB1 in which expanding a node competes with descending into it.

With `PAPER_POLICY` it is the published one (arXiv 2604.16625). Beyond that, a new correct structure is owed
refinements before its first time is held against it: until then it is valued at what they usually add. And the chance
of a structural step follows how the component fares.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from random import Random
from typing import Any

from engine.records import Step
from engine.search.choice import Choice
from engine.search.snapshot import ROOT, Snapshot
from engine.settings import PolicySettings

TOLD_ARMS = 6
"""How many arms of a node are written down with a choice; a node may have thousands."""

TOLD_LEVELS = 10
"""How many levels of a descent are written down: the first two and the last ones."""

LIKELIEST = 0.9
"""The highest chance of a structural step, however long a component has stagnated."""

RECENT = 100
"""How many structures tell what refinement usually adds."""

OPTIMISM = 0.3
"""What refinements are taken to add to the reward of a structure while nobody knows."""

_ALIKE = 0.1
"""A structure no further than this from the pool is a variation, and is owed nothing."""


def choose(snapshot: Snapshot, settings: PolicySettings, random: Random) -> Choice | None:
    """Picks the next expansion, or None when nothing can be expanded now."""
    if not snapshot.can_grow(ROOT):
        return None
    terms: dict[str, Any] = {}
    match settings.selection:
        case "random":
            number = random.choice(_growing(snapshot))
        case "greedy":
            number = _greediest(snapshot)
        case _:
            number, terms = _descend(snapshot, settings)
    step, reason = _step(snapshot, settings, number, random)
    return Choice(number, step, {"selection": settings.selection, **terms, "step": reason})


def _growing(snapshot: Snapshot) -> list[int]:
    return [number for number in (ROOT, *snapshot.nodes) if snapshot.steps_left(number)]


def _greediest(snapshot: Snapshot) -> int:
    return max(_growing(snapshot), key=lambda number: (_reward(snapshot, number), -number))


def _reward(snapshot: Snapshot, number: int) -> float:
    return -1.0 if number == ROOT else snapshot.nodes[number].reward or 0.0


# Selection


@dataclass(frozen=True, slots=True)
class _Arm:
    """What may be done at a node: descend into a `child`, or expand here (None)."""

    child: int | None
    value: float
    bonus: float
    owed: bool = False

    @property
    def score(self) -> float:
        return self.value + self.bonus

    def told(self) -> dict[str, Any]:
        """The arm's terms as they are written down with a choice."""
        owed = {"owed": True} if self.owed else {}
        return {"arm": self.child, "value": self.value, "bonus": self.bonus, "score": self.score, **owed}


def _descend(snapshot: Snapshot, settings: PolicySettings) -> tuple[int, dict[str, Any]]:
    """Follows the best arm down from the root until expanding wins; the terms are those of each level."""
    number = ROOT
    path: list[dict[str, Any]] = []
    gain = _usual_gain(snapshot, settings) if settings.owed_refinements else 0.0
    while True:
        arms, others = _arms(snapshot, settings, number, gain)
        # Of equals a child wins over expanding (as published), and of children the oldest.
        best = max(arms, key=lambda arm: (arm.score, arm.child is not None, -(arm.child or 0)))
        told = sorted(arms, key=lambda arm: (arm is not best, arm.child is not None, -arm.score))
        left_out = {"others": others} if others else {}
        path.append({"at": number, "took": best.child, "arms": [arm.told() for arm in told], **left_out})
        if best.child is None:
            break
        number = best.child
    left_out = {"levels_left_out": len(path) - TOLD_LEVELS} if len(path) > TOLD_LEVELS else {}
    return number, {"path": path if not left_out else [*path[:2], *path[2 - TOLD_LEVELS :]], **left_out}


def _arms(snapshot: Snapshot, settings: PolicySettings, number: int, gain: float) -> tuple[list[_Arm], int]:
    """The leading arms at a node, the best among them, and how many others there are.

    A child scores (1-a)*mean + a*max of its subtree plus c*sqrt(ln N / n); expanding scores the best value
    among the children plus c*sqrt(ln N / k^2), for N visits of the node and k children. A structure that is owed
    refinements is worth at least its own reward and what they usually add.
    """
    children = snapshot.children.get(number, ())
    exploration = settings.exploration * math.sqrt(math.log(max(snapshot.statistics[number].visits, 1)))
    weight = settings.max_weight
    best_value = 0.0
    # A path may pass thousands of children: only the leading ones become more than numbers.
    scored: list[tuple[float, int, float, float, bool]] = []
    for child in children:
        statistics = snapshot.statistics[child]
        value = weight * statistics.best + (1 - weight) * statistics.mean
        best_value = max(best_value, value)
        if not statistics.growing:
            continue
        bonus = exploration / math.sqrt(statistics.visits)
        owed = False
        if settings.owed_refinements:
            hoped = (snapshot.nodes[child].reward or 0.0) + gain
            owed = hoped > value and _owed(snapshot, settings, child)
            value = hoped if owed else value
        scored.append((value + bonus, -child, value, bonus, owed))
    leading = heapq.nlargest(TOLD_ARMS, scored)
    arms = [_Arm(-child, value, bonus, owed) for _, child, value, bonus, owed in leading]
    if snapshot.steps_left(number):
        # Without children it is the only arm there is: nothing to weigh it against.
        arms.append(_Arm(None, best_value, exploration / len(children) if children else 0.0))
    return arms, len(scored) - len(leading)


def _owed(snapshot: Snapshot, settings: PolicySettings, number: int) -> bool:
    """Whether a correct structure has not had its first refinements yet."""
    node = snapshot.nodes[number]
    if node.step is not Step.STRUCTURAL or not node.correct:
        return False
    if node.novelty is not None and node.novelty <= _ALIKE:
        return False
    children = snapshot.children.get(number, ())
    if len(children) >= settings.owed_refinements:
        refined = sum(snapshot.nodes[child].step is Step.LOCAL for child in children)
        if refined >= settings.owed_refinements:
            return False
    return snapshot.has_left(number, Step.LOCAL)


def _usual_gain(snapshot: Snapshot, settings: PolicySettings) -> float:
    """How much the refinements that are owed have added to the reward of correct structures, on average of the last."""
    gains = []
    for root in sorted(snapshot.components)[-RECENT:]:
        component, first = snapshot.components[root], snapshot.nodes[root]
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
