"""New kernels only, each shown earlier ones: the recent, the best, or some of both (the setting `context`)."""

from __future__ import annotations

import heapq
import math
from random import Random

from engine.search.choice import Choice, structural_at_root
from engine.search.snapshot import Node, Snapshot
from engine.settings import PolicySettings


def choose(snapshot: Snapshot, settings: PolicySettings, random: Random) -> Choice | None:
    """A structure at the root that sees `context_pool` earlier candidates."""
    judged = [node for node in snapshot.nodes.values() if not node.open]
    size = settings.context_pool
    match settings.context:
        case "recent":
            shown = _recent(judged, size)
        case "best":
            shown = heapq.nlargest(size, judged, key=lambda node: (node.correct, node.reward or 0.0, -node.number))
        case _:
            shown = _recent(judged, size // 2)
            seen = {node.number for node in shown}
            rest = [node for node in judged if node.correct and node.number not in seen]
            shown += draw_by_speedup(rest, size - size // 2, random)
    return structural_at_root(snapshot, f"{settings.context} context", tuple(node.number for node in shown))


def _recent(judged: list[Node], size: int) -> list[Node]:
    return sorted(judged, key=lambda node: node.number)[-size:] if size else []


def draw_by_speedup(nodes: list[Node], size: int, random: Random) -> list[Node]:
    """Draws nodes without putting back, the likelier the faster they are (softmax over speedup)."""
    waiting = sorted(nodes, key=lambda node: node.number)
    drawn: list[Node] = []
    while waiting and len(drawn) < size:
        fastest = max(node.speedup or 0.0 for node in waiting)
        weights = [math.exp((node.speedup or 0.0) - fastest) for node in waiting]
        (index,) = random.choices(range(len(waiting)), weights)
        drawn.append(waiting.pop(index))
    return drawn
