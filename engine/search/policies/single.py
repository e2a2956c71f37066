"""One kernel and no search: what a proposer gives when it is asked once."""

from __future__ import annotations

from random import Random

from engine.search.choice import Choice, structural_at_root
from engine.search.snapshot import Snapshot
from engine.settings import PolicySettings


def choose(snapshot: Snapshot, settings: PolicySettings, random: Random) -> Choice | None:
    """A structure at the root if nothing was asked for yet."""
    return None if snapshot.asked else structural_at_root(snapshot, "the only one")
