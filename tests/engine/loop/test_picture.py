"""The loop's picture of its tree: what it takes from events is what reading everything anew gives."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest

from engine.loop.picture import Picture
from engine.records import CandidateState, CommandKind, Evaluation, ProposerKind, Step, Verdict
from engine.settings import RunSettings
from engine.store.control import Control
from engine.store.run_store import RunStore
from tests.engine.loop.scripted import make_run


def happens(random: Random, store: RunStore, control: Control) -> None:
    """One of the things that happen in a search, of the engine's or of a person's doing."""
    candidates = store.candidates()
    judged = [c for c in candidates if c.state is CandidateState.EVALUATED and not c.pruned]
    proposing, queued, running = (
        [c.number for c in candidates if c.state is state]
        for state in (CandidateState.PROPOSING, CandidateState.QUEUED, CandidateState.EVALUATING)
    )
    draw = random.random()
    if draw < 0.3 or not candidates:
        parent = random.choice([None, *judged])
        step = Step.STRUCTURAL if parent is None or random.random() < 0.3 else Step.LOCAL
        store.add_candidate(parent, step, ProposerKind.COMPILER, {})
    elif draw < 0.5 and proposing:
        number = random.choice(proposing)
        if random.random() < 0.15:
            store.proposal_failed(number, "nothing usable")
        else:
            source = f"source {random.randrange(40)}"
            store.proposed(number, source, "idea", None, random.random() < 0.2, novelty=random.random())
    elif draw < 0.6 and queued:
        store.claim(random.choice(queued))
    elif draw < 0.85 and (running or any(c.retest for c in judged)):
        again = [c.number for c in judged if c.retest and store.claim(c.number)]
        number = random.choice(running or again or [0])
        if number:
            store.evaluated(number, _verdict(random), random.uniform(0.5, 2.0), random.random())
    else:
        kind = random.choice(
            [CommandKind.PRUNE, CommandKind.RESTORE, CommandKind.PIN, CommandKind.RETEST, CommandKind.APPROVE]
        )
        control.ask(store.run_id, kind, random.choice(candidates).number)
        store.obey()
    if random.random() < 0.05:
        control.add_human(store.run_id, None, f"by hand {random.random()}", "mine")


def _verdict(random: Random) -> Evaluation:
    verdict = random.choice([Verdict.CORRECT, Verdict.CORRECT, Verdict.INCORRECT, Verdict.INFRASTRUCTURE_ERROR])
    correct = verdict is Verdict.CORRECT
    return Evaluation(
        verdict, "time", "", time_us=random.uniform(1, 9) if correct else None,
        fingerprint=f"code {random.randrange(30)}" if correct else None,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_following_the_events_gives_the_same_as_reading_everything(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    db = tmp_path / "runs.db"
    run = make_run(db, budget=50)
    store = RunStore.take(db, run)
    settings = RunSettings.model_validate(store.run().settings)
    followed = Picture(store, settings)
    with Control(db) as control:
        for index in range(120):
            happens(random, store, control)
            if random.random() < 0.5:
                followed.refresh()
            if random.random() < 0.05 and followed.snapshot.nodes:
                followed.exhaust(random.choice(sorted(followed.snapshot.nodes)), random.choice(list(Step)), "no more")
            if index % 20 == 19:
                followed.refresh()
                anew = Picture(store, settings)
                assert followed.candidates == anew.candidates
                assert followed.snapshot == anew.snapshot
                assert followed.retests == anew.retests
                assert followed.next_number == anew.next_number
                now = time.time()
                assert followed.standing(store.run(), now) == anew.standing(store.run(), now)
                for state in CandidateState:
                    assert followed.in_states(state) == anew.in_states(state)
    store.release()
