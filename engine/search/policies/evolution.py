"""Evolution on islands: `width` populations that mutate and cross among themselves, and sometimes visit.

What grows from one kernel at the root belongs to one island. A mutation is a local step, a crossing a
structural step from the better of two parents that shows both.
"""

from __future__ import annotations

from random import Random

from engine.records import Step
from engine.search.choice import Choice, structural_at_root
from engine.search.snapshot import Node, Snapshot
from engine.settings import PolicySettings

SEEDS = 2
"""How many kernels each island starts from."""

_TOURNAMENT, _CROSSING, _VISIT = 3, 0.3, 0.1
"""How many compete to be a parent; the chances that a step crosses, and that it crosses with another island."""


def choose(snapshot: Snapshot, settings: PolicySettings, random: Random) -> Choice | None:
    """Fills the islands, then takes them in turn."""
    islands = _islands(snapshot, settings.width)
    smallest = min(range(settings.width), key=lambda index: len(islands[index]))
    if len(snapshot.children.get(snapshot.origin, ())) < SEEDS * settings.width:
        begun = structural_at_root(snapshot, f"a seed of island {smallest}")
        if begun is not None:
            return begun
    turn = [(snapshot.asked + offset) % settings.width for offset in range(settings.width)]
    for index in turn:
        fertile = [node for node in islands[index] if snapshot.steps_left(node.number)]
        if fertile:
            return _breed(snapshot, index, fertile, islands, random)
    return structural_at_root(snapshot, "no island can grow")


def _islands(snapshot: Snapshot, count: int) -> list[list[Node]]:
    """The judged nodes of each island; kernels at the root are dealt out in turn."""
    island_of: dict[int, int] = {}
    islands: list[list[Node]] = [[] for _ in range(count)]
    for position, number in enumerate(snapshot.children.get(snapshot.origin, ())):
        island_of[number] = position % count
    for number in sorted(snapshot.nodes):
        node = snapshot.nodes[number]
        island_of.setdefault(number, island_of.get(node.parent, 0))
        if not node.open:
            islands[island_of[number]].append(node)
    return islands


def _breed(
    snapshot: Snapshot, index: int, fertile: list[Node], islands: list[list[Node]], random: Random
) -> Choice | None:
    parent = _tournament(fertile, random)
    left = snapshot.steps_left(parent.number)
    crossing = Step.STRUCTURAL in left and (Step.LOCAL not in left or random.random() < _CROSSING)
    if not crossing:
        return Choice(parent.number, Step.LOCAL, {"step": f"a mutation on island {index}"})
    visit = random.random() < _VISIT
    mates = [node for other, island in enumerate(islands) for node in island if (other != index) == visit]
    mates = [node for node in mates if node.correct and node.number != parent.number]
    if not mates:
        return Choice(parent.number, Step.STRUCTURAL, {"step": f"island {index} has no mate"}, (parent.number,))
    mate = _tournament(mates, random)
    where = f"island {index}{' with a visitor' if visit else ''}"
    why = {"step": f"{parent.number} crossed with {mate.number} on {where}"}
    return Choice(parent.number, Step.STRUCTURAL, why, (parent.number, mate.number))


def _tournament(nodes: list[Node], random: Random) -> Node:
    drawn = [random.choice(nodes) for _ in range(_TOURNAMENT)]
    return max(drawn, key=lambda node: (node.reward or 0.0, -node.number))
