"""Independent samples: every candidate a new kernel that sees none of the others."""

from __future__ import annotations

from random import Random

from engine.search.choice import Choice, structural_at_root
from engine.search.snapshot import Snapshot
from engine.settings import PolicySettings


def choose(snapshot: Snapshot, settings: PolicySettings, random: Random) -> Choice | None:
    """A structure at the root, from the task alone."""
    return structural_at_root(snapshot, "another sample")
