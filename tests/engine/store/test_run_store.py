"""What the engine writes: compare-and-set moves, events in the same transaction, fencing, putting back."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from engine.events import BestChanged, CandidateAdded, CandidateEvaluated, CandidateMoved, EngineStarted, RunChanged
from engine.records import (
    CandidateState,
    CaseResult,
    Check,
    CommandKind,
    Evaluation,
    Label,
    Measurement,
    MeasurementKind,
    ProposerKind,
    RunState,
    Step,
    Verdict,
)
from engine.store.control import Control
from engine.store.database import transaction
from engine.store.lease import LeaseHeld, LeaseLost
from engine.store.reader import Reader
from engine.store.run_store import RunStore
from tests.engine.store.conftest import grow


def test_each_change_of_state_comes_with_its_event(db: Path, run: int, store: RunStore) -> None:
    number = grow(store, "source", time_us=10.0)
    with Reader(db) as reader:
        events = [recorded.event for recorded in reader.events(run)]
    assert [type(event) for event in events] == [
        RunChanged,
        EngineStarted,
        CandidateAdded,
        CandidateMoved,
        CandidateMoved,
        CandidateEvaluated,
        BestChanged,
    ]
    assert events[-1] == BestChanged(number, 10.0, 10.0)


def test_a_failure_inside_a_transaction_leaves_neither_state_nor_event(
    db: Path, run: int, store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = grow(store, "source", judge=False)
    store.claim(number)
    with Reader(db) as reader:
        before = reader.last_event()

    def broken(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr("engine.store.evaluations.refresh_best", broken)
    with pytest.raises(sqlite3.OperationalError):
        store.evaluated(number, Evaluation(Verdict.CORRECT, "time", "", time_us=1.0), 1.0, 1.0)
    with Reader(db) as reader:
        assert reader.last_event() == before
        assert reader.candidates(run, [number])[0].state is CandidateState.EVALUATING
        assert reader.evaluation(run, number) is None


def test_only_one_claim_of_a_candidate_wins(store: RunStore) -> None:
    number = grow(store, "source", judge=False)
    assert store.claim(number)
    assert not store.claim(number)


def test_the_same_text_twice_is_a_duplicate_and_is_not_queued(store: RunStore) -> None:
    first = grow(store, "source", time_us=10.0)
    second = grow(store, "source")
    twin = store.candidates()[-1]
    assert (twin.number, twin.state, twin.duplicate_of) == (second, CandidateState.DUPLICATE, first)


def test_the_same_compiled_code_twice_is_a_duplicate(store: RunStore) -> None:
    first = grow(store, "one", time_us=10.0, fingerprint="f")
    grow(store, "two", time_us=9.0, fingerprint="f")
    twin = store.candidates()[-1]
    assert twin.state is CandidateState.DUPLICATE
    assert twin.duplicate_of == first
    assert store.run().best == first


def test_best_is_the_fastest_correct_candidate_without_a_barring_label(store: RunStore) -> None:
    grow(store, "wrong", time_us=1.0, verdict=Verdict.INCORRECT)
    grow(store, "labelled", time_us=2.0, labels=(Label.NO_TRITON,))
    slower = grow(store, "slower", time_us=20.0)
    assert store.run().best == slower
    faster = grow(store, "faster", time_us=15.0, labels=(Label.NONDETERMINISTIC,))
    assert store.run().best == faster


def timed(time_us: float, spread_us: float) -> Evaluation:
    """A correct candidate with a 95% interval."""
    measurement = Measurement(MeasurementKind.MEASURED, time_us, (time_us - spread_us, time_us + spread_us))
    return Evaluation(
        Verdict.CORRECT, "time", "", cases=(CaseResult("c", 1.0, Verdict.CORRECT, measurement),), time_us=time_us
    )


def judge(store: RunStore, number: int, evaluation: Evaluation) -> None:
    assert store.claim(number)
    assert store.evaluated(number, evaluation, 1.0, 1.0)


def test_a_time_that_is_not_clearly_lower_does_not_change_the_best(db: Path, run: int, store: RunStore) -> None:
    times = [(10.0, 0.2), (10.0, 0.2), (9.7, 0.2), (9.5, 0.2), (9.4, 0.4), (8.0, 2.0)]
    best = []
    for index, (time_us, spread_us) in enumerate(times):
        number = grow(store, f"source {index}", judge=False)
        judge(store, number, timed(time_us, spread_us))
        best.append(store.run().best)
    assert best == [1, 1, 1, 4, 4, 4]
    with Reader(db) as reader:
        told = [recorded.event for recorded in reader.events(run) if isinstance(recorded.event, BestChanged)]
    assert [event.candidate for event in told] == [1, 4]


def test_when_the_best_is_pruned_the_fastest_of_the_others_is_best(run: int, store: RunStore, control: Control) -> None:
    for index, time_us in enumerate((10.0, 9.0, 9.1)):
        judge(store, grow(store, f"source {index}", judge=False), timed(time_us, 0.2))
    assert store.run().best == 2
    control.ask(run, CommandKind.PRUNE, 2)
    store.obey()
    assert store.run().best == 3


def test_an_evaluation_reads_back_as_it_was_written(db: Path, run: int, store: RunStore) -> None:
    number = grow(store, "source", judge=False)
    store.claim(number)
    evaluation = Evaluation(
        Verdict.INCORRECT, "correct", "off by 3", checks=(Check("seed 1", False, "[/b]"),), log="line\nline\n"
    )
    store.evaluated(number, evaluation, None, 0.05)
    with Reader(db) as reader:
        assert reader.evaluation(run, number) == evaluation


def test_a_second_engine_is_refused_and_told_who_holds_the_run(db: Path, run: int, store: RunStore) -> None:
    import os

    with pytest.raises(LeaseHeld, match=str(os.getpid())):
        RunStore.take(db, run)


def test_an_engine_that_lost_its_lease_can_change_nothing(db: Path, run: int, store: RunStore) -> None:
    number = grow(store, "source", judge=False)
    with transaction(store._db) as connection:
        connection.execute("UPDATE leases SET process_started = 'long ago'")
    successor = RunStore.take(db, run)
    with pytest.raises(LeaseLost):
        store.claim(number)
    with pytest.raises(LeaseLost):
        store.set_state(RunState.DONE)
    assert successor.claim(number)
    successor.close()


def test_taking_over_queues_again_what_was_being_judged(db: Path, run: int, store: RunStore) -> None:
    judged = grow(store, "one", time_us=10.0)
    running = grow(store, "two", judge=False)
    store.claim(running)
    with transaction(store._db) as connection:
        connection.execute("UPDATE leases SET process_started = 'long ago'")
    successor = RunStore.take(db, run)
    states = {candidate.number: candidate.state for candidate in successor.candidates()}
    assert states == {judged: CandidateState.EVALUATED, running: CandidateState.QUEUED}
    states_of_evaluations = successor._connection.execute("SELECT candidate, state FROM evaluations ORDER BY id")
    assert [tuple(row) for row in states_of_evaluations] == [(judged, "done"), (running, "void")]
    successor.close()


def test_releasing_lets_another_engine_in(db: Path, run: int) -> None:
    RunStore.take(db, run).release()
    second = RunStore.take(db, run)
    assert second.epoch == 2
    second.release()


def test_a_run_that_does_not_exist_is_refused(db: Path, run: int) -> None:
    with pytest.raises(KeyError, match="no run 99"):
        RunStore.take(db, 99)


def test_ending_a_run_abandons_its_waiting_work(store: RunStore) -> None:
    grow(store, "waiting", judge=False)
    store.add_candidate(None, Step.STRUCTURAL, ProposerKind.COMPILER, {})
    store.set_state(RunState.STOPPED, "stopped by a person", ended_by="stop")
    assert {candidate.state for candidate in store.candidates()} == {CandidateState.ABANDONED}
    assert store.run().ended_by == "stop"


def test_what_the_end_of_a_run_abandoned_waits_again_when_it_goes_on(
    run: int, store: RunStore, control: Control
) -> None:
    queued = grow(store, "queued", judge=False)
    gated = grow(store, "gated", gated=True)
    pruned = grow(store, "pruned", judge=False)
    unmade = store.add_candidate(None, Step.STRUCTURAL, ProposerKind.COMPILER, {})
    control.ask(run, CommandKind.PRUNE, pruned)
    store.obey()
    store.set_state(RunState.STOPPED, "stopped by a person", ended_by="stop")
    assert {candidate.state for candidate in store.candidates()} == {CandidateState.ABANDONED}
    store.set_state(RunState.RUNNING)
    assert {candidate.number: candidate.state for candidate in store.candidates()} == {
        queued: CandidateState.QUEUED,
        gated: CandidateState.AWAITING_APPROVAL,
        pruned: CandidateState.ABANDONED,
        unmade: CandidateState.ABANDONED,
    }


def test_a_candidate_that_the_machine_could_not_judge_uses_no_budget(db: Path, run: int, store: RunStore) -> None:
    number = grow(store, "source", judge=False)
    judge(store, number, Evaluation(Verdict.INFRASTRUCTURE_ERROR, "load", "the judge was killed"))
    assert not store.candidates()[0].uses_budget
    with Reader(db) as reader:
        overview = reader.run(run)
    assert overview is not None
    assert overview.judged == 0


def test_a_candidate_judged_again_keeps_its_verdict_until_the_new_one_is_there(
    db: Path, run: int, store: RunStore, control: Control
) -> None:
    first = grow(store, "one", time_us=10.0, fingerprint="f")
    second = grow(store, "two", time_us=12.0)
    control.ask(run, CommandKind.RETEST, first)
    store.obey()
    (candidate,) = store.candidates()[:1]
    assert (candidate.state, candidate.retest, store.run().best) == (CandidateState.EVALUATED, True, first)
    assert store.claim(first)
    with transaction(store._db) as connection:
        connection.execute("UPDATE leases SET process_started = 'long ago'")
    successor = RunStore.take(db, run)
    assert successor.candidates()[0].retest, "the engine died before it was judged"
    slower = Evaluation(Verdict.CORRECT, "time", "", time_us=14.0, fingerprint="f")
    assert successor.claim(first)
    assert successor.evaluated(first, slower, 7.0, 0.9)
    assert not successor.claim(first)
    candidate = successor.candidates()[0]
    assert (candidate.time_us, candidate.reward, candidate.retest) == (14.0, 0.9, False)
    assert successor.run().best == second
    successor.close()


def test_a_run_does_not_end_over_a_kernel_that_a_person_has_just_entered(
    db: Path, run: int, store: RunStore, control: Control
) -> None:
    store.set_state(RunState.RUNNING)
    number = control.add_human(run, None, "by hand", "mine")
    assert not store.finish("the budget is used up", "budget")
    assert store.run().state is RunState.RUNNING
    assert store.claim(number)
    store.evaluated(number, Evaluation(Verdict.CORRECT, "time", "", time_us=1.0), 1.0, 1.0)
    assert store.finish("the budget is used up", "budget")
    assert store.run().state is RunState.DONE


def test_a_second_start_of_the_engine_writes_only_baselines_that_are_new(db: Path, run: int, store: RunStore) -> None:
    facts = {
        "toolchain": {"torch": "2.13.0"},
        "cases": [
            {"name": "small", "tiers": {"exact": {"eager": 9.0}, "reduced": {"eager": 7.0}}, "bounds": {"exact": 2.0}},
            {"name": "large", "tiers": {"exact": {"eager": 90.0}}},
        ],
    }
    for _ in range(2):
        store.task_opened("cpu", "modelled", facts, {"eager": 9.0})
    connection = sqlite3.connect(db)
    rows = connection.execute("SELECT case_name, tier, name, time_us FROM baselines ORDER BY id").fetchall()
    connection.close()
    assert rows == [
        ("small", "exact", "eager", 9.0),
        ("small", "reduced", "eager", 7.0),
        ("small", "exact", "bound", 2.0),
        ("large", "exact", "eager", 90.0),
    ]
