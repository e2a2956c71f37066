from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.records import CandidateState, Evaluation, ProposerKind, Step, Verdict
from engine.settings import RunSettings
from engine.store.control import Control
from engine.store.run_store import RunStore
from engine.tasks.catalogue import find_task


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def run(db: Path) -> int:
    with Control(db) as control:
        return control.create_run(find_task("softmax"), RunSettings(budget=5))


@pytest.fixture
def store(db: Path, run: int) -> Iterator[RunStore]:
    store = RunStore.take(db, run)
    yield store
    store.close()


@pytest.fixture
def control(db: Path, run: int) -> Iterator[Control]:
    with Control(db) as control:
        yield control


def grow(
    store: RunStore,
    source: str,
    parent: int | None = None,
    *,
    step: Step = Step.STRUCTURAL,
    time_us: float | None = None,
    verdict: Verdict = Verdict.CORRECT,
    labels: tuple[str, ...] = (),
    fingerprint: str | None = None,
    judge: bool = True,
    gated: bool = False,
) -> int:
    """Adds a candidate and, if asked to, judges it."""
    above = next((c for c in store.candidates() if c.number == parent), None)
    number = store.add_candidate(above, step, ProposerKind.COMPILER, {})
    state = store.proposed(number, source, f"idea {number}", {"structure": "s", "parameters": {}}, gated)
    if judge and state is CandidateState.QUEUED:
        assert store.claim(number)
        evaluation = Evaluation(verdict, "time", "", labels=labels, time_us=time_us, fingerprint=fingerprint, log="log")
        store.evaluated(number, evaluation, 100.0 / time_us if time_us else None, 1.0)
    return number
