"""Which queued candidate is judged first: pure functions of the snapshot."""

from __future__ import annotations

from engine.records import Step
from engine.search.snapshot import ROOT, Snapshot


def expected_reward(snapshot: Snapshot, number: int) -> float:
    """What a candidate without a verdict will probably earn.

    An edit earns what its parent did. A new structure earns what structures have earned so far, and more the
    further it is from what the pool holds, since more is learned from it.
    """
    node = snapshot.nodes.get(number)
    if node is None:
        return 0.0
    if node.step is Step.LOCAL and node.parent != ROOT:
        return snapshot.nodes[node.parent].reward or 0.0
    earned = [first.reward for root in snapshot.components if (first := snapshot.nodes[root]).reward is not None]
    return (sum(earned) / len(earned) if earned else 0.0) + 0.1 * (node.novelty or 0.0)
