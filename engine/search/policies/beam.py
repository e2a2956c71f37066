"""Beam search: the `width` best candidates so far are refined in turn, the least refined first."""

from __future__ import annotations

import heapq
from random import Random

from engine.records import Step
from engine.search.choice import Choice, structural_at_root
from engine.search.snapshot import Snapshot
from engine.settings import PolicySettings


def choose(snapshot: Snapshot, settings: PolicySettings, random: Random) -> Choice | None:
    """Fills the beam with structures, then edits its member with the fewest edits, the best of equals."""
    if len(snapshot.children.get(snapshot.origin, ())) < settings.width:
        begun = structural_at_root(snapshot, f"the beam has room for {settings.width}")
        if begun is not None:
            return begun
    editable = [
        node for node in snapshot.nodes.values() if not node.open and Step.LOCAL in snapshot.steps_left(node.number)
    ]
    beam = heapq.nlargest(settings.width, editable, key=lambda node: (node.reward or 0.0, -node.number))
    if not beam:
        return structural_at_root(snapshot, "nothing in the beam can be edited")
    chosen = min(beam, key=lambda node: len(snapshot.local_children(node.number)))
    why = {"step": f"{chosen.number} has the fewest edits in the beam", "beam": [node.number for node in beam]}
    return Choice(chosen.number, Step.LOCAL, why)
