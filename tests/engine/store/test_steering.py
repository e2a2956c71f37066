"""What people's commands do, with and without a living engine."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from engine.api import resume_run
from engine.records import CandidateState, CommandKind, CommandState, ProposerKind, RunState, Step
from engine.store.control import Control
from engine.store.lease import Holder
from engine.store.reader import Reader
from engine.store.run_store import RunStore
from engine.store.steering import Refused
from tests.engine.store.conftest import grow


def states(store: RunStore) -> dict[int, CandidateState]:
    return {candidate.number: candidate.state for candidate in store.candidates()}


def test_a_command_waits_for_the_living_engine_which_answers_it(
    db: Path, run: int, store: RunStore, control: Control
) -> None:
    number = grow(store, "gated", gated=True)
    command = control.ask(run, CommandKind.APPROVE, number)
    assert command.state is CommandState.QUEUED
    store.obey()
    with Reader(db) as reader:
        (answered,) = reader.commands(run)
    assert answered.state is CommandState.DONE
    assert states(store)[number] is CandidateState.QUEUED


def test_a_senseless_command_is_refused_with_a_reason(db: Path, run: int, store: RunStore, control: Control) -> None:
    number = grow(store, "judged", time_us=1.0)
    control.ask(run, CommandKind.APPROVE, number)
    control.ask(run, CommandKind.PRUNE, 99)
    control.ask(run, CommandKind.BUDGET, argument="many")
    store.obey()
    with Reader(db) as reader:
        answers = [(command.state, command.answer) for command in reversed(reader.commands(run))]
    assert answers == [
        (CommandState.REFUSED, f"candidate {number} does not wait for approval; it is evaluated"),
        (CommandState.REFUSED, f"run {run} has no candidate 99"),
        (CommandState.REFUSED, "a budget is a whole number from 1 to 1000000, not 'many'"),
    ]


def test_rejecting_keeps_the_reason(run: int, store: RunStore, control: Control) -> None:
    number = grow(store, "gated", gated=True)
    control.ask(run, CommandKind.REJECT, number, "too clever")
    store.obey()
    candidate = store.candidates()[0]
    assert (candidate.state, candidate.reason) == (CandidateState.REJECTED, "rejected: too clever")


def test_pruning_takes_the_subtree_out_and_restoring_brings_it_back(
    run: int, store: RunStore, control: Control
) -> None:
    root = grow(store, "root", time_us=10.0)
    child = grow(store, "child", root, time_us=5.0)
    waiting = grow(store, "waiting", child, judge=False)
    gated = grow(store, "gated", child, gated=True)
    other = grow(store, "other", time_us=20.0)
    control.ask(run, CommandKind.PRUNE, root)
    store.obey()
    pruned = {candidate.number for candidate in store.candidates() if candidate.pruned}
    assert pruned == {root, child, waiting, gated}
    assert states(store)[waiting] is CandidateState.ABANDONED
    assert store.run().best == other
    control.ask(run, CommandKind.RESTORE, root)
    store.obey()
    assert not any(candidate.pruned for candidate in store.candidates())
    assert states(store)[waiting] is CandidateState.QUEUED
    assert states(store)[gated] is CandidateState.AWAITING_APPROVAL
    assert store.run().best == child


def test_restoring_below_a_pruned_candidate_is_refused(db: Path, run: int, store: RunStore, control: Control) -> None:
    root = grow(store, "root", time_us=10.0)
    child = grow(store, "child", root, time_us=5.0)
    control.ask(run, CommandKind.PRUNE, root)
    control.ask(run, CommandKind.RESTORE, child)
    store.obey()
    with Reader(db) as reader:
        assert "restore that one" in reader.commands(run)[0].answer


def test_a_verdict_that_comes_after_pruning_does_not_count(run: int, store: RunStore, control: Control) -> None:
    from engine.records import Evaluation, Verdict

    number = grow(store, "source", judge=False)
    store.claim(number)
    control.ask(run, CommandKind.PRUNE, number)
    store.obey()
    assert not store.evaluated(number, Evaluation(Verdict.CORRECT, "time", "", time_us=1.0), 1.0, 1.0)
    assert states(store)[number] is CandidateState.ABANDONED


def test_without_an_engine_flags_apply_at_once_and_the_rest_waits_for_resume(
    db: Path, run: int, control: Control
) -> None:
    store = RunStore.take(db, run)
    number = grow(store, "source", time_us=1.0)
    store.release()
    assert control.ask(run, CommandKind.PIN, number).state is CommandState.DONE
    assert control.ask(run, CommandKind.PRUNE, number).state is CommandState.DONE
    assert control.ask(run, CommandKind.PRUNE, 77).state is CommandState.REFUSED
    assert control.ask(run, CommandKind.HINT, argument="use shared memory").state is CommandState.DONE
    budget = control.ask(run, CommandKind.BUDGET, argument="9")
    assert (budget.state, budget.answer) == (
        CommandState.DONE,
        f"the budget is now 9 candidates; let it go on with: kernelgrove resume {run}",
    )
    for kind, argument in ((CommandKind.PAUSE, ""), (CommandKind.RETEST, ""), (CommandKind.FORCE, "local")):
        waiting = control.ask(run, kind, number, argument)
        assert waiting.state is CommandState.QUEUED
        assert f"kernelgrove resume {run}" in waiting.answer
    successor = RunStore.take(db, run)
    assert successor.run().budget == 9
    successor.obey()
    with Reader(db) as reader:
        answers = {command.kind: command.answer for command in reader.commands(run)}
    assert answers[CommandKind.RETEST] == f"candidate {number} is pruned; restore it first"
    assert "waits for" in answers[CommandKind.FORCE], "nobody knows yet who would take the step"
    successor.release()


def test_a_queued_command_can_be_taken_back_and_an_answered_one_cannot(
    run: int, store: RunStore, control: Control
) -> None:
    store.set_state(RunState.RUNNING)
    command = control.ask(run, CommandKind.PAUSE)
    assert control.retract(run, command.id).state is CommandState.RETRACTED
    store.obey()
    assert store.run().state is RunState.RUNNING
    command = control.ask(run, CommandKind.PAUSE)
    store.obey()
    assert control.retract(run, command.id).state is CommandState.DONE
    assert store.run().state is RunState.PAUSED


def test_a_persons_kernel_becomes_a_queued_child(db: Path, run: int, store: RunStore, control: Control) -> None:
    parent = grow(store, "parent", time_us=1.0)
    number = control.add_human(run, parent, "mine", "by hand")
    child = store.candidates()[-1]
    assert (child.number, child.parent, child.proposer, child.state) == (
        number,
        parent,
        ProposerKind.HUMAN,
        CandidateState.QUEUED,
    )
    assert store.source(number) == "mine"
    with pytest.raises(KeyError):
        control.add_human(run, 99, "mine", "by hand")


def test_writers_from_many_threads_lose_nothing(db: Path, run: int, store: RunStore) -> None:
    number = grow(store, "source", time_us=1.0)
    problems: list[BaseException] = []

    def ask() -> None:
        try:
            with Control(db) as control:
                for _ in range(10):
                    control.ask(run, CommandKind.PIN, number)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        store.heartbeat()
    for thread in threads:
        thread.join()
    store.obey()
    with Reader(db) as reader:
        answered = reader.commands(run)
    assert not problems
    assert len(answered) == 40
    assert sum(command.state is CommandState.DONE for command in answered) == 1


def test_a_command_taken_back_at_the_last_moment_is_not_carried_out(
    run: int, store: RunStore, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.set_state(RunState.RUNNING)
    command = control.ask(run, CommandKind.PAUSE)
    write = store._write

    def after_the_retraction() -> AbstractContextManager[sqlite3.Connection]:
        control.retract(run, command.id)
        return write()

    monkeypatch.setattr(store, "_write", after_the_retraction)
    store.obey()
    assert store.run().state is RunState.RUNNING


def test_pruning_closes_what_was_asked_of_judge_and_proposer(
    db: Path, run: int, store: RunStore, control: Control
) -> None:
    root = grow(store, "root", time_us=10.0)
    judged = grow(store, "judged", root, judge=False)
    store.claim(judged)
    above = next(c for c in store.candidates() if c.number == root)
    asked = store.add_candidate(above, Step.LOCAL, ProposerKind.COMPILER, {})
    control.ask(run, CommandKind.PRUNE, root)
    store.obey()
    connection = sqlite3.connect(db)
    evaluations = connection.execute("SELECT state FROM evaluations WHERE candidate = ?", (judged,)).fetchall()
    proposals = connection.execute("SELECT state FROM proposals WHERE candidate = ?", (asked,)).fetchall()
    connection.close()
    assert (evaluations, proposals) == ([("void",)], [("interrupted",)])


def test_an_answer_that_comes_after_pruning_is_remembered_but_not_judged(
    run: int, store: RunStore, control: Control
) -> None:
    number = store.add_candidate(None, Step.STRUCTURAL, ProposerKind.COMPILER, {})
    control.ask(run, CommandKind.PRUNE, number)
    store.obey()
    recipe = {"structure": "rows", "parameters": {}}
    assert store.proposed(number, "late", "idea", recipe, gated=False) is CandidateState.ABANDONED
    assert store.recipes() == {number: recipe}


def test_a_command_to_an_engine_that_is_leaving_is_answered_at_once(
    run: int, store: RunStore, control: Control
) -> None:
    number = grow(store, "source", time_us=1.0)
    store.set_state(RunState.DONE, "the budget is used up", ended_by="budget")
    assert control.ask(run, CommandKind.PIN, number).state is CommandState.DONE
    assert f"kernelgrove resume {run}" in control.ask(run, CommandKind.RETEST, number).answer
    stop = control.ask(run, CommandKind.STOP)
    assert (stop.state, stop.answer) == (CommandState.REFUSED, f"run {run} is done")


def test_resuming_overtakes_a_pause_that_no_engine_has_seen(
    db: Path, run: int, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    control.ask(run, CommandKind.PAUSE)
    started: list[int] = []

    def launch(_: Path, number: int) -> Holder:
        started.append(number)
        return Holder(number, 1, "here", 1, "", 0.0, False)

    monkeypatch.setattr("engine.api.launch", launch)
    resume_run(db, run)
    assert started == [run]
    successor = RunStore.take(db, run)
    successor.obey()
    assert successor.run().state is RunState.RUNNING
    successor.release()


def test_nothing_grows_from_a_pruned_candidate(run: int, store: RunStore, control: Control) -> None:
    number = grow(store, "source", time_us=1.0)
    control.ask(run, CommandKind.PRUNE, number)
    store.obey()
    with pytest.raises(KeyError, match="restore it first"):
        control.add_human(run, number, "by hand", "mine")


def test_restoring_brings_back_what_that_pruning_took_out_and_no_more(
    db: Path, run: int, store: RunStore, control: Control
) -> None:
    top = grow(store, "top", time_us=1.0)
    middle = grow(store, "middle", top, time_us=1.0)
    bottom = grow(store, "bottom", middle, time_us=1.0)
    other = grow(store, "other", top, time_us=1.0)

    def ask(kind: CommandKind, number: int) -> str:
        control.ask(run, kind, number)
        store.obey()
        with Reader(db) as reader:
            return reader.commands(run)[0].answer

    assert ask(CommandKind.PRUNE, middle) == f"pruned {middle} and the 1 that grew from it"
    assert ask(CommandKind.PRUNE, top) == f"pruned {top} and the 1 that grew from it"
    assert ask(CommandKind.PRUNE, other) == f"candidate {other} is pruned already"
    assert ask(CommandKind.RESTORE, middle) == f"candidate {middle} lies below {top}, which is pruned; restore that one"
    assert ask(CommandKind.RESTORE, bottom) == (
        f"candidate {bottom} lies below {middle}, which is pruned; restore that one"
    )
    assert ask(CommandKind.RESTORE, top) == f"restored {top} and the 1 that grew from it"
    assert {c.number for c in store.candidates() if c.pruned} == {middle, bottom}
    assert ask(CommandKind.RESTORE, middle) == f"restored {middle} and the 1 that grew from it"
    assert not any(candidate.pruned for candidate in store.candidates())


def test_hints_are_kept_for_the_run_and_for_what_grows_from_a_candidate(
    db: Path, run: int, store: RunStore, control: Control
) -> None:
    top = grow(store, "top", time_us=1.0)
    child = grow(store, "child", top, time_us=1.0)
    other = grow(store, "other", time_us=1.0)
    control.ask(run, CommandKind.HINT, argument="for all")
    control.ask(run, CommandKind.HINT, top, "below the top")
    control.ask(run, CommandKind.HINT, argument="  ")
    control.ask(run, CommandKind.HINT, 99, "nowhere")
    store.obey()
    with Reader(db) as reader:
        answers = [command.answer for command in reversed(reader.commands(run))]
        assert reader.hints(run, child) == ["for all", "below the top"]
        assert reader.hints(run, other) == ["for all"]
        assert reader.hints(run, None) == ["for all"]
    assert answers == [
        "the hint goes into every proposal from now on",
        f"the hint goes into every proposal that grows from {top}",
        "a hint needs a text",
        f"run {run} has no candidate 99",
    ]


def test_a_step_is_forced_where_something_can_grow(db: Path, run: int, store: RunStore, control: Control) -> None:
    judged = grow(store, "judged", time_us=1.0)
    waiting = grow(store, "waiting", judge=False)

    class Proposers:
        def taker(self, number: int, step: Step) -> tuple[ProposerKind, dict[str, object]]:
            if step is Step.STRUCTURAL and number:
                raise Refused("all structures have been offered")
            return ProposerKind.LLM, {"context": {"numbers": [number]}}

        def check_answer(self, parent: int | None, text: str) -> None:
            raise AssertionError("nobody answers")

    for number, step in (
        (judged, "local"),
        (waiting, "local"),
        (judged, "structural"),
        (0, "structural"),
        (0, "local"),
    ):
        control.ask(run, CommandKind.FORCE, number, step)
    control.ask(run, CommandKind.FORCE, judged, "sideways")
    store.obey()
    assert len(store.candidates()) == 2, "without a proposer forced steps wait"
    store.obey(Proposers())
    with Reader(db) as reader:
        answers = [command.answer for command in reversed(reader.commands(run))]
    assert answers == [
        f"a local step from {judged} becomes candidate 3",
        f"nothing can grow from candidate {waiting}; it is queued",
        "all structures have been offered",
        "a structural step at the root becomes candidate 4",
        "there is no kernel at the root that a local step could edit",
        "a step is structural or local, not 'sideways'",
    ]
    made = [(c.number, c.parent, c.step, c.proposer, c.state) for c in store.candidates()[2:]]
    assert made == [
        (3, judged, Step.LOCAL, ProposerKind.LLM, CandidateState.PROPOSING),
        (4, None, Step.STRUCTURAL, ProposerKind.LLM, CandidateState.PROPOSING),
    ]


def test_only_what_was_judged_is_judged_again(db: Path, run: int, store: RunStore, control: Control) -> None:
    judged = grow(store, "judged", time_us=1.0, fingerprint="f")
    grow(store, "the same", time_us=1.0, fingerprint="f")
    waiting = grow(store, "waiting", judge=False)
    for number in (judged, judged, 2, waiting):
        control.ask(run, CommandKind.RETEST, number)
    store.obey()
    with Reader(db) as reader:
        answers = [command.answer for command in reversed(reader.commands(run))]
    assert answers == [
        f"{judged} is judged again, and keeps its verdict until then",
        f"candidate {judged} waits to be judged again already",
        f"candidate 2 is the same as {judged}; retest that one",
        f"candidate {waiting} has not been judged; it is queued",
    ]
