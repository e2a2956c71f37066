"""One chain: a first kernel, then each candidate an edit of the one before, better or not."""

from __future__ import annotations

from random import Random

from engine.records import Step
from engine.search.choice import Choice, structural_at_root
from engine.search.snapshot import Snapshot
from engine.settings import PolicySettings


def choose(snapshot: Snapshot, settings: PolicySettings, random: Random) -> Choice | None:
    """An edit of the newest candidate that can still be edited; a first kernel where there is none."""
    if any(node.open for node in snapshot.nodes.values()):
        return None
    for number in sorted(snapshot.nodes, reverse=True):
        if Step.LOCAL in snapshot.steps_left(number):
            return Choice(number, Step.LOCAL, {"step": f"{number} is the newest"})
    return structural_at_root(snapshot, "a chain begins")
