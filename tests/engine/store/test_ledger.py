"""The ledger: prompts kept exactly, money reserved and settled, what was cut still charged."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from engine.records import CallFailure, CallState, CandidateState, CommandKind, ProposerKind, Step, Usage
from engine.store.control import Control
from engine.store.ledger import CallOrder, OverBudget
from engine.store.reader import Reader
from engine.store.run_store import RunStore

LONG = "the reference, which every prompt of the run repeats\n" * 20


def order(candidate: int, *, reserve: float | None = 0.5, user: tuple[str, ...] = ("short", LONG)) -> CallOrder:
    messages = [("system", ["Be brief.\n"]), ("user", user)]
    return CallOrder(candidate, "tiny", "http://localhost/v1", "structural", 1, 1, messages, [], ["tried"], reserve)


def ask(store: RunStore) -> int:
    return store.add_candidate(None, Step.STRUCTURAL, ProposerKind.LLM, {})


def test_a_prompt_is_given_back_exactly_and_shared_parts_are_stored_once(db: Path, store: RunStore) -> None:
    first = store.ledger.begin(order(ask(store)))
    with Reader(db) as reader:
        before = _size(db)
        assert reader.prompt(first) == [("system", "Be brief.\n"), ("user", "short" + LONG)]
        second = store.ledger.begin(order(ask(store), user=("other", LONG)))
        assert reader.prompt(second) == [("system", "Be brief.\n"), ("user", "other" + LONG)]
    assert _size(db) - before < len(LONG)


def _size(db: Path) -> int:
    connection = sqlite3.connect(db)
    (size,) = connection.execute("SELECT sum(length(body)) FROM texts").fetchone()
    connection.close()
    return int(size)


def test_a_kernel_that_an_answer_repeats_stays_readable_for_any_sqlite_browser(db: Path, store: RunStore) -> None:
    number = ask(store)
    source = "import triton\n" * 40
    store.ledger.settle(store.ledger.begin(order(number)), source, Usage(1, 1), 0.0)
    store.proposed(number, source, "idea", None, False)
    with Reader(db) as reader:
        (call,) = reader.calls(store.run_id, number)
        assert reader.response(call.id) == reader.source(store.run_id, number) == source
    connection = sqlite3.connect(db)
    assert connection.execute(
        "SELECT body FROM texts JOIN candidates ON source_hash = hash WHERE number = ?", (number,)
    ).fetchone() == (source,)
    connection.close()


def test_an_answer_is_seen_while_it_is_written(db: Path, store: RunStore) -> None:
    call = store.ledger.begin(order(ask(store)))
    with Reader(db) as reader:
        store.ledger.write(call, "import tri")
        assert reader.response(call) == "import tri"
        store.ledger.settle(call, "import triton", Usage(10, 5), 0.01)
        assert reader.response(call) == "import triton"


def test_a_reserve_is_held_until_the_price_is_known(store: RunStore) -> None:
    call = store.ledger.begin(order(ask(store)), 1.0)
    assert (store.ledger.spending().usd, store.ledger.spending().reserved_usd) == (0.0, 0.5)
    store.ledger.settle(call, "answer", Usage(100, 20, reasoning=5), 0.03)
    spending = store.ledger.spending()
    assert (spending.usd, spending.reserved_usd) == (0.03, 0.0)
    assert (spending.tokens_in, spending.tokens_out, spending.tokens_reasoning) == (100, 20, 5)


def test_a_request_that_the_money_may_not_cover_is_refused_and_leaves_nothing(db: Path, store: RunStore) -> None:
    store.ledger.begin(order(ask(store)), 0.8)
    number = ask(store)
    with pytest.raises(OverBudget, match=r"may cost \$0.5000 and \$0.3000 is left of \$0.8"):
        store.ledger.begin(order(number), 0.8)
    assert store.ledger.spending().calls == 1
    with Reader(db) as reader:
        assert reader.calls(store.run_id, number) == []


def test_without_a_price_tokens_count_and_money_does_not(store: RunStore) -> None:
    call = store.ledger.begin(order(ask(store), reserve=None), 0.01)
    store.ledger.settle(call, "answer", Usage(7, 3), None)
    spending = store.ledger.spending()
    assert (spending.tokens_in, spending.usd, spending.unpriced) == (7, 0.0, 1)


def test_failures_are_counted_by_cause(store: RunStore) -> None:
    for cause in (CallFailure.NO_CODE, CallFailure.NO_CODE, CallFailure.REFUSED):
        store.ledger.settle(store.ledger.begin(order(ask(store))), "", Usage(), 0.0, cause, "why")
    assert store.ledger.spending().failures == {"no_code": 2, "refused": 1}


def test_a_request_cut_by_a_kill_keeps_its_text_and_its_reserve_is_charged_once(db: Path, run: int) -> None:
    killed = RunStore.take(db, run)
    number = ask(killed)
    call = killed.ledger.begin(order(number))
    killed.ledger.write(call, "half an ans")
    killed._db.conn.execute("UPDATE leases SET process_started = 'a process that is gone'")
    killed.close()
    for _ in range(2):
        store = RunStore.take(db, run)
        with Reader(db) as reader:
            (found,) = reader.calls(run, number)
            assert (found.state, found.cost_usd) == (CallState.INTERRUPTED, 0.5)
            assert reader.response(call) == "half an ans"
            assert reader.spending(run).usd == 0.5
            assert reader.candidates(run, [number])[0].state is CandidateState.PROPOSING
        store.release()


def test_what_ends_late_changes_nothing(db: Path, store: RunStore) -> None:
    call = store.ledger.begin(order(ask(store)))
    store.ledger.interrupt(call, "half")
    store.ledger.settle(call, "whole", Usage(1, 1), 0.01)
    store.ledger.write(call, "later")
    with Reader(db) as reader:
        assert (reader.response(call), reader.spending(store.run_id).usd) == ("half", 0.5)


def test_pruning_a_candidate_closes_its_request(db: Path, store: RunStore) -> None:
    number = ask(store)
    store.ledger.begin(order(number))
    connection = store._db.conn
    with Control(db) as control:
        assert connection.execute("SELECT count(*) FROM model_calls WHERE state = 'open'").fetchone()[0] == 1
        control.ask(store.run_id, CommandKind.PRUNE, number)
    store.obey()
    with Reader(db) as reader:
        assert reader.calls(store.run_id, number)[0].state is CallState.INTERRUPTED


def test_hints_for_the_run_and_for_what_a_candidate_grew_from_are_found(db: Path, store: RunStore) -> None:
    top = ask(store)
    store.proposed(top, "source", "idea", None, False)
    (above,) = store.candidates()
    below = store.add_candidate(above, Step.LOCAL, ProposerKind.LLM, {})
    other = ask(store)
    connection = store._db.conn
    for candidate, text, state in (
        (None, "all", "done"),
        (top, "top", "done"),
        (other, "other", "done"),
        (None, "late", "queued"),
    ):
        connection.execute(
            "INSERT INTO commands (run, kind, candidate, argument, state, created_at) VALUES (?, 'hint', ?, ?, ?, 0)",
            (store.run_id, candidate, text, state),
        )
    with Reader(db) as reader:
        assert reader.hints(store.run_id, below) == ["all", "top"]
        assert reader.hints(store.run_id, None) == ["all"]
