"""A model's answer in the cockpit: read while it is written, with what it was asked and what it costs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.records import CallFailure, ProposerKind, Step, Usage
from engine.store.ledger import CallOrder
from tests.tui.grove import Grove
from tests.tui.pilots import opened_run, text_of, until
from tui.reading import Detail, Wanted, read_detail


def ask(grove: Grove) -> tuple[int, int]:
    """A candidate that a model is being asked for, and the request."""
    number = grove.store.add_candidate(None, Step.STRUCTURAL, ProposerKind.LLM, {"step": "at the root"})
    messages = [("user", ["Write a kernel."])]
    order = CallOrder(number, "tiny", "http://localhost/v1", "structural", 3, 1, messages, [], [], 0.5)
    return number, grove.store.ledger.begin(order)


async def test_an_answer_is_shown_while_it_is_written_and_its_money_in_the_status(grove: Grove, db: Path) -> None:
    number, call = ask(grove)
    async with opened_run(db, grove.run, (200, 50)) as (pilot, app, screen):
        await pilot.press("G")
        await until(pilot, lambda: screen.view.tree.cursor == number, "the newest candidate")
        grove.store.ledger.write(call, "import triton\n")
        await until(pilot, lambda: "import triton" in text_of(app), "the first words")
        assert "being written" in text_of(app)
        grove.store.ledger.write(call, "import triton\n\n\n@triton.jit\ndef rows")
        await until(pilot, lambda: "def rows" in text_of(app), "more words")
        await until(pilot, lambda: "$0.5000" in text_of(app), "what is held")
        grove.store.ledger.settle(call, "import [/b]\n", Usage(900, 40), 0.25, CallFailure.NO_CODE, "no block")
        grove.store.proposal_failed(number, "no code: no block")
        await until(pilot, lambda: "$0.2500" in text_of(app), "what was spent")
        await until(
            pilot, lambda: screen.detail is not None and screen.detail.calls[0].usage.input == 900, "its tokens"
        )
        assert "import [/b]" in text_of(app)
        await pilot.press("y", "p")
        await until(pilot, lambda: f"prompt of {number}" in text_of(app), "the prompt is copied")
        (copied,) = Path(os.environ["XDG_CACHE_HOME"]).rglob(f"*-{number}-prompt.txt")
        assert copied.read_text() == "Write a kernel."
        assert "no code" in text_of(app)


async def test_a_screen_on_which_nothing_is_written_is_not_drawn_again(
    grove: Grove, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, call = ask(grove)
    grove.store.ledger.write(call, "import triton\n")
    reads: list[Detail] = []

    def counted(db: Path, wanted: Wanted) -> Detail:
        reads.append(read_detail(db, wanted))
        return reads[-1]

    monkeypatch.setattr("tui.screens.run.read_detail", counted)
    async with opened_run(db, grove.run, (200, 50)) as (pilot, _, screen):
        await pilot.press("G")
        await until(pilot, lambda: screen.detail is not None and screen.detail.wanted.number == number, "it is read")
        detail, before = screen.detail, len(reads)
        await until(pilot, lambda: len(reads) >= before + 2, "it is read again")
        assert screen.detail is detail
