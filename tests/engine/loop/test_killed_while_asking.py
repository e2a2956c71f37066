"""An engine that is killed, or a model server that dies, in the middle of an answer: nothing is lost or paid unseen."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.api import resume_run, start_run
from engine.records import CallState, CandidateState, CommandKind, ModelCall, RunState
from engine.settings import RunSettings
from engine.store.control import Control
from engine.store.reader import Reader, RunOverview
from engine.tasks.catalogue import find_task
from tests.engine.loop.processes import alive, descendants, kill, until
from tests.engine.proposing.model_server import Exchange, ModelServer, module_answer, says, trickles


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "runs.db"
    yield path
    with Reader(path) as reader:
        for overview in reader.runs():
            if overview.engine is not None and overview.engine.alive:
                kill(overview.engine.pid)


def begin(db: Path, server: ModelServer, **llm: object) -> int:
    price = {"input": 1.0, "output": 10.0}
    values = {"model": "tiny", "base_url": server.url, "price": price, "retries": 0, **llm}
    settings = RunSettings.model_validate(
        {"budget": 1, "proposer": "llm", "llm": values, "policy": {"actions": "structural"}}
    )
    return start_run(db, find_task("softmax"), settings)


def overview_of(db: Path, run: int) -> RunOverview:
    with Reader(db) as reader:
        overview = reader.run(run)
    assert overview is not None
    return overview


def engine_of(db: Path, run: int) -> int:
    engine = overview_of(db, run).engine
    assert engine is not None
    return engine.pid


def calls_of(db: Path, run: int, number: int = 1) -> list[ModelCall]:
    with Reader(db) as reader:
        return reader.calls(run, number)


def being_written(db: Path, run: int) -> bool:
    with Reader(db) as reader:
        return any(reader.response(call.id) for call in reader.calls(run, 1))


@pytest.mark.slow
def test_an_answer_cut_off_by_a_kill_is_kept_and_charged_and_the_candidate_is_asked_for_again(
    db: Path, server: ModelServer
) -> None:
    server.script = [trickles("word ")]
    server.otherwise = lambda exchange: says(module_answer(f"Kernel {len(server.requests)}"))(exchange)
    run = begin(db, server)
    until(lambda: being_written(db, run), 120, "a part of the answer")
    pid = engine_of(db, run)
    below = descendants(pid)
    kill(pid)
    until(lambda: not alive({pid} | below), what="the end of all processes")
    resume_run(db, run)
    until(lambda: overview_of(db, run).run.state.ended, 240, "the end of the run")
    overview = overview_of(db, run)
    assert overview.run.state is RunState.DONE, overview.run.reason
    cut, again = calls_of(db, run)
    assert (cut.state, cut.cost_usd, again.state) == (CallState.INTERRUPTED, cut.reserved_usd, CallState.ANSWERED)
    with Reader(db) as reader:
        assert reader.response(cut.id).startswith("word ")
        assert reader.prompt(cut.id) == reader.prompt(again.id)
        assert [c.state for c in reader.candidates(run)] == [CandidateState.EVALUATED]
    assert overview.spending.failures == {"interrupted": 1}
    assert overview.spending.reserved_usd == 0


@pytest.mark.slow
def test_a_stop_in_the_middle_of_an_answer_ends_at_once_and_charges_what_was_reserved(
    db: Path, server: ModelServer
) -> None:
    server.script = [trickles("word ")]
    run = begin(db, server)
    until(lambda: being_written(db, run), 120, "a part of the answer")
    with Control(db) as control:
        control.ask(run, CommandKind.STOP)
    until(lambda: overview_of(db, run).run.state is RunState.STOPPED, 30, "the stop")
    (cut,) = calls_of(db, run)
    assert (cut.state, cut.cost_usd) == (CallState.INTERRUPTED, cut.reserved_usd)
    with Reader(db) as reader:
        assert reader.candidates(run)[0].state is CandidateState.ABANDONED


@pytest.mark.slow
def test_a_model_server_that_dies_in_the_middle_of_an_answer_is_named_and_the_run_waits_for_a_person(
    db: Path, server: ModelServer
) -> None:
    dying = threading.Event()

    def dies(exchange: Exchange) -> None:
        exchange.begin_stream()
        exchange.event('{"choices": [{"delta": {"content": "import tri"}}]}')
        dying.wait(60)
        server.stop_listening()
        exchange.handler.close_connection = True
        exchange.handler.connection.shutdown(2)

    server.script = [dies]
    run = begin(db, server)
    until(lambda: being_written(db, run), 120, "a part of the answer")
    dying.set()
    until(lambda: overview_of(db, run).run.state.ended, 240, "the end of the run")
    overview = overview_of(db, run)
    assert (overview.run.state, overview.run.ended_by) == (RunState.FAILED, "proposer")
    assert "cannot be reached" in (overview.run.reason or "")
    dropped, unreachable = calls_of(db, run)
    assert [str(dropped.failure), str(unreachable.failure)] == ["dropped", "unreachable"]
