"""Searches by a model from the command line: a real engine, judge and server, and what is refused before it starts."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.records import CallState, ProposerKind, RunState, Step, Usage
from engine.settings import RunSettings
from engine.store.control import Control
from engine.store.ledger import CallOrder
from engine.store.reader import Reader
from engine.store.run_store import RunStore
from engine.tasks.catalogue import find_task
from tests.engine.proposing.model_server import Exchange, ModelServer, edit_answer, kernel, module_answer, says
from tests.tui.commands.conftest import Call
from tests.tui.grove import Grove

KEY = "sk-a-secret-of-some-length"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server
        assert server.untold == 0


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def answers(exchange: Exchange) -> None:
    """What a model might say to any prompt of a search."""
    if "numbered list" in exchange.prompt:
        says("1. Use 4 warps.")(exchange)
    elif "<<<<<<< SEARCH" in exchange.prompt and "num_warps=8" in exchange.prompt:
        says(edit_answer("num_warps=8", "num_warps=4", "4 warps"))(exchange)
    elif "<<<<<<< SEARCH" in exchange.prompt:
        says("I have no idea.")(exchange)
    else:
        says(module_answer())(exchange)


def test_a_mixed_search_starts_with_the_compiler_and_tells_what_the_model_was_sent_and_what_it_cost(
    server: ModelServer, call: Call, db: Path, tmp_path: Path
) -> None:
    server.otherwise = answers
    (tmp_path / "kernelgrove.toml").write_text('[prices.tiny]\ninput = 1.0\noutput = 2.0\nas_of = "today"\n')
    (tmp_path / "notes.md").write_text("Rows are short here.")
    flags = ["--model", "tiny", "--base-url", server.url, "--context", "notes.md", "--max-cost", "5"]
    outcome = call("run", "softmax", *flags, "--budget", "3", "--seed", "3", "--headless", "--json")
    assert outcome.code == 0, outcome.err
    document = json.loads(outcome.out)
    assert (document["state"], document["ended_by"]) == ("done", "budget")
    cost = document["cost"]
    assert cost["calls"] == len(server.requests)
    assert cost["usd"] == pytest.approx((cost["tokens_in"] * 1.0 + cost["tokens_out"] * 2.0) / 1e6)
    assert (cost["max_usd"], cost["reserved_usd"]) == (5.0, 0.0)
    with Reader(db) as reader:
        first, second, *_ = reader.candidates(1)
        assert (first.proposer, first.step, second.proposer) == (
            ProposerKind.COMPILER,
            Step.STRUCTURAL,
            ProposerKind.LLM,
        )
        (request, *_) = reader.calls(1, second.number)
        assert request.state is CallState.ANSWERED
        answer = reader.response(request.id)
    sent = server.requests[0]
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    for message in sent.body["messages"]:
        assert message["content"] in call("show", "1", "2", "--prompt").out
    assert "Rows are short here." in sent.prompt
    assert "Candidate 1 (structural): inductor" in "".join(exchange.prompt for exchange in server.requests)
    why = call("show", "1", "2", "--why").out
    assert "rules in the prompt: " in why
    assert "candidates shown: " in why
    assert "sent " in call("status", "1").out
    told = call("skills", "show", "arange-power-of-two").out
    assert f"# in {sum('power of two' in exchange.prompt for exchange in server.requests)} prompts, about " in told
    assert answer in call("show", "1", "2", "--log").out
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.suffix == ".log" for path in written)
    assert not [path for path in written if KEY.encode() in path.read_bytes()]


def test_the_preview_shows_a_prompt_and_where_it_would_go_and_sends_nothing(server: ModelServer, call: Call) -> None:
    flags = ["--proposer", "llm", "--model", "tiny", "--base-url", server.url, "--budget", "1", "--skills", "none"]
    shown = call("run", "softmax", *flags, "--preview", "--json")
    assert (shown.code, server.requests) == (0, [])
    assert "no price is known for tiny" in shown.err
    document = json.loads(shown.out)
    assert (document["destination"], document["model"], document["max_usd"]) == (server.url, "tiny", None)
    assert "torch.softmax(x, dim=-1)" in document["messages"][-1]["text"]


@pytest.mark.slow
def test_the_preview_is_the_prompt_that_is_sent_first(server: ModelServer, call: Call) -> None:
    flags = ["--proposer", "llm", "--model", "tiny", "--base-url", server.url, "--budget", "1"]
    document = json.loads(call("run", "softmax", *flags, "--preview", "--json").out)
    server.otherwise = says(module_answer())
    assert call("run", "softmax", *flags, "--headless").code == 0
    sent = server.requests[0].body["messages"]
    assert [message["text"] for message in document["messages"]] == [message["content"] for message in sent]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--proposer", "llm"], "name it with --model"),
        (["--model", "tiny", "--base-url", "localhost:8000"], "write an address such as"),
        (["--model", "tiny", "--base-url", "http://me:secret@localhost/v1"], "leave keys and passwords out"),
        (["--model", "tiny", "--base-url", "http://localhost/v1", "--max-cost", "1"], '[prices."tiny"]'),
        (
            ["--model", "tiny", "--base-url", "http://localhost/v1", "--context", "nowhere"],
            "notes nowhere cannot be read",
        ),
        (
            ["--model", "tiny", "--base-url", "http://localhost/v1", "--skills", "nowhere"],
            "there are no rules at nowhere",
        ),
        (["--preview"], "nothing leaves this machine"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_a_run_is_made(
    call: Call, db: Path, flags: list[str], words: str
) -> None:
    outcome = call("run", "softmax", *flags, "--headless")
    assert outcome.code == 2
    assert words in outcome.err
    assert outcome.err.count("\n") == 1
    assert "secret" not in outcome.err
    assert not db.exists()


def test_without_a_key_the_start_is_refused(call: Call, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    outcome = call("run", "softmax", "--model", "gpt-6-sol", "--headless")
    assert (outcome.code, "set OPENAI_API_KEY" in outcome.err, db.exists()) == (2, True, False)


def test_a_key_among_the_settings_is_refused_without_being_repeated(call: Call, tmp_path: Path) -> None:
    (tmp_path / "kernelgrove.toml").write_text(f'[run.llm]\nmodel = "tiny"\napi_key = "{KEY}"\n')
    outcome = call("run", "softmax", "--headless")
    assert outcome.code == 2
    assert "run.llm.api_key" in outcome.err
    assert KEY not in outcome.err


def test_what_is_being_written_can_be_read_from_another_terminal(call: Call, db: Path) -> None:
    grove = Grove(db)
    number = grove.store.add_candidate(None, Step.STRUCTURAL, ProposerKind.LLM, {})
    order = CallOrder(number, "tiny", "http://localhost/v1", "structural", 1, 1, [("user", ["Write."])], [], [], 0.5)
    request = grove.store.ledger.begin(order)
    grove.store.ledger.write(request, kernel()[:60])
    assert kernel()[:60] in call("show", "1", str(number), "--log").out
    assert "being answered, $0.5000 is held for it" in call("show", "1", str(number), "--prompt").out
    assert json.loads(call("status", "1", "--json").out)["cost"]["reserved_usd"] == 0.5
    grove.close()
    connection = sqlite3.connect(db)
    assert connection.execute("SELECT count(*) FROM model_calls").fetchone() == (1,)
    connection.close()


def test_a_candidate_that_no_model_made_has_no_prompt(call: Call, db: Path) -> None:
    grove = Grove(db)
    number = grove.grow(None, "one", 1.2)
    grove.close()
    outcome = call("show", "1", str(number), "--prompt")
    assert (outcome.code, "no model was asked" in outcome.err) == (2, True)


def test_a_run_whose_money_is_used_up_is_resumed_with_more(call: Call, db: Path) -> None:
    price = {"input": 1.0, "output": 10.0}
    llm = {"model": "tiny", "base_url": "http://localhost/v1", "price": price}
    settings = RunSettings.model_validate({"proposer": "llm", "llm": llm, "max_cost": 0.5})
    with Control(db) as control:
        run = control.create_run(find_task("softmax"), settings)
    store = RunStore.take(db, run)
    number = store.add_candidate(None, Step.STRUCTURAL, ProposerKind.LLM, {})
    order = CallOrder(number, "tiny", "http://localhost/v1", "structural", 1, 1, [("user", ["Write."])], [], [], 0.45)
    store.ledger.settle(store.ledger.begin(order), "no", Usage(10, 10), 0.45)
    store.proposal_failed(number, "no code")
    store.set_state(RunState.DONE, "the money is used up", ended_by="cost")
    store.release()
    refused = call("resume", str(run))
    assert refused.code == 2
    assert "$0.4500 of $0.5 is spent, and another proposal may cost up to $0.1840" in refused.err
    assert f"kernelgrove resume {run} --max-cost USD" in refused.err
    assert "setting max_cost is wrong" in call("resume", str(run), "--max-cost", "-1").err
    with Reader(db) as reader:
        overview = reader.run(run)
    assert overview is not None
    assert overview.run.settings["max_cost"] == 0.5
