"""Which candidates a proposer is shown: pure functions of the snapshot and a generator.

The local component of a structural node is the node itself with all that grew from it by local steps alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from engine.records import Step
from engine.search.snapshot import ROOT, Snapshot

CHAIN_LENGTH = 5
"""How many candidates of a chain a local step is shown at most."""

_MORE = 0.5
"""The chance that one more kernel of another component is shown; the count is geometric, cut off at the pool's size."""


@dataclass(frozen=True, slots=True)
class Context:
    """The numbers of the candidates to show, in the order to show them, and in words why these."""

    numbers: tuple[int, ...]
    reason: str


def choose_context(snapshot: Snapshot, parent: int, step: Step, pool: int, random: Random) -> Context:
    """The context of a step at a node (`ROOT` or a candidate's number)."""
    if step is Step.LOCAL:
        return local_context(snapshot, parent)
    return structural_context(snapshot, parent, pool, random)


def local_context(snapshot: Snapshot, parent: int, length: int = CHAIN_LENGTH) -> Context:
    """The chain from the parent back to its nearest structural ancestor, the last few of it, oldest first."""
    chain = [parent]
    while snapshot.nodes[chain[-1]].step is not Step.STRUCTURAL and snapshot.nodes[chain[-1]].parent != ROOT:
        chain.append(snapshot.nodes[chain[-1]].parent)
    kept = tuple(reversed(chain[:length]))
    left_out = f", the last {length} of {len(chain)}" if len(chain) > length else ""
    return Context(kept, f"the chain from {chain[-1]} to {parent}{left_out}")


def structural_context(snapshot: Snapshot, parent: int, pool: int, random: Random) -> Context:
    """For each structural node above, the best correct kernel of its local component, nearest the root first.

    More than `pool` are sampled down at random. Fewer are topped up from other components: how many follows a
    truncated geometric law, which ones a softmax over speedup (AdaExplore).
    """
    best = best_of_components(snapshot)
    path = [best[head] for head in _structural_path(snapshot, parent) if head in best]
    reason = f"the best of {len(path)} structures above" if path else "no structure above is correct yet"
    if len(path) > pool:
        kept = sorted(random.sample(range(len(path)), pool))
        return Context(tuple(path[index] for index in kept), f"{reason}, {pool} of them drawn")
    others = sorted(number for number in best.values() if number not in path)
    drawn = _draw(snapshot, others, _count(min(pool - len(path), len(others)), random), random)
    if drawn:
        reason += f"; {len(drawn)} of {len(others)} other structures drawn by speedup"
    return Context((*path, *drawn), reason)


def best_of_components(snapshot: Snapshot) -> Mapping[int, int]:
    """The fastest correct candidate of each local component that has one, by the component's structural node."""
    components = snapshot.components.items()
    return {head: component.best for head, component in components if component.best is not None}


def _structural_path(snapshot: Snapshot, parent: int) -> list[int]:
    """The structural nodes from the root down to a node, itself included."""
    path = []
    number = parent
    while number != ROOT:
        node = snapshot.nodes[number]
        # What a person entered below the root by a local step heads a component as well.
        if node.step is Step.STRUCTURAL or node.parent == ROOT:
            path.append(number)
        number = node.parent
    return path[::-1]


def _count(most: int, random: Random) -> int:
    """A geometric count, cut off at `most`."""
    if most <= 0:
        return 0
    weights = [_MORE**count for count in range(most + 1)]
    return random.choices(range(most + 1), weights)[0]


def _draw(snapshot: Snapshot, numbers: list[int], count: int, random: Random) -> list[int]:
    """Draws without replacement, by a softmax over speedup."""
    left, drawn = list(numbers), []
    for _ in range(count):
        fastest = max(snapshot.nodes[number].speedup or 0.0 for number in left)
        weights = [math.exp((snapshot.nodes[number].speedup or 0.0) - fastest) for number in left]
        drawn.append(random.choices(left, weights)[0])
        left.remove(drawn[-1])
    return drawn
