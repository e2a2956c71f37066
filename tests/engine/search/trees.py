"""Random trees as a run's candidates, for the property tests."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import strategies as st

from engine.records import Candidate, CandidateState, ProposerKind, Step, Verdict
from engine.search.snapshot import ROOT

_OPEN = (CandidateState.PROPOSING, CandidateState.AWAITING_APPROVAL, CandidateState.QUEUED, CandidateState.EVALUATING)
_GONE = (CandidateState.FAILED, CandidateState.REJECTED, CandidateState.DUPLICATE, CandidateState.ABANDONED)


def candidate(
    number: int,
    parent: int | None = None,
    value: float | None = 1.0,
    *,
    step: Step = Step.LOCAL,
    state: CandidateState = CandidateState.EVALUATED,
    pruned: bool = False,
    speedup: float | None = None,
    verdict: Verdict = Verdict.CORRECT,
    novelty: float | None = None,
    proposer: ProposerKind = ProposerKind.COMPILER,
) -> Candidate:
    """A candidate as the store gives it."""
    return Candidate(
        1, number, parent, step, proposer, state, "", 1, reward=value, pruned=pruned, speedup=speedup, novelty=novelty,
        verdict=verdict if state is CandidateState.EVALUATED else None,
    )  # fmt: skip


@st.composite
def candidates(draw: st.DrawFn, most: int = 40) -> list[Candidate]:
    """A tree in which anything may have become of each candidate; a pruned one takes its subtree along."""
    random = Random(draw(st.integers(0, 2**32)))
    size = draw(st.integers(0, most))
    tree: list[Candidate] = []
    for number in range(1, size + 1):
        parent = random.choice([None, *range(1, number)])
        tree.append(_grown(random, number, parent, any(c.number == parent and c.pruned for c in tree)))
    return tree


def _grown(random: Random, number: int, parent: int | None, below_pruned: bool) -> Candidate:
    state = random.choice([CandidateState.EVALUATED] * 6 + [random.choice(_OPEN), random.choice(_GONE)])
    correct = random.random() < 0.6
    return candidate(
        number, parent, (random.uniform(0.4, 1.6) if correct else 0.05) if state is CandidateState.EVALUATED else None,
        step=Step.STRUCTURAL if parent is None or random.random() < 0.3 else Step.LOCAL, state=state,
        pruned=below_pruned or random.random() < 0.1, speedup=random.uniform(0.1, 4.0) if correct else None,
        verdict=Verdict.CORRECT if correct else Verdict.INCORRECT, novelty=random.choice([None, 0.0, 0.5]),
    )  # fmt: skip


def changed(random: Random, tree: list[Candidate]) -> list[Candidate]:
    """The same tree after time has passed: one candidate more, or something became of an open one."""
    opened = [c for c in tree if c.state in _OPEN]
    if opened and random.random() < 0.6:
        old = random.choice(opened)
        new = replace(_grown(random, old.number, old.parent, False), step=old.step, pruned=old.pruned)
        return [new if c is old else c for c in tree]
    number = len(tree) + 1
    parent = random.choice([None, *(c.number for c in tree)])
    below_pruned = any(c.number == parent and c.pruned for c in tree)
    return [*tree, _grown(random, number, parent, below_pruned)]


exhaustions = st.frozensets(st.tuples(st.integers(ROOT, 40), st.sampled_from(Step)), max_size=12)
