"""The reasons for a candidate in sentences, and what a run spent in words."""

from __future__ import annotations

import pytest

from engine.records import CallFailure, CallState, ModelCall, Spending, Usage
from engine.store.reader import ProposalNote
from tui.state.spending import money_text, spending_lines, spent_text, tokens_text
from tui.state.why import choice_sentences, why_sentences

WHY = {
    "selection": "ucb",
    "path": [
        {
            "at": 0,
            "took": 3,
            "arms": [
                {"arm": 3, "value": 1.1, "bonus": 0.2, "score": 1.3},
                {"arm": None, "value": 1.1, "bonus": 0.1, "score": 1.2},
            ],
            "others": 2,
        },
        {"at": 3, "took": None, "arms": [{"arm": None, "value": 0.5, "bonus": 0.0, "score": 0.5, "owed": True}]},
    ],
    "step": "3 has 1 local children",
    "context": {"numbers": [1, 3], "reason": "the chain from 1 to 3"},
    "beam": [3, 4],
}


def call(**changes: object) -> ModelCall:
    values = {
        "id": 1, "run": 1, "candidate": 4, "state": CallState.ANSWERED, "model": "tiny",
        "destination": "http://localhost/v1", "template": "tuner", "version": 2, "attempt": 1,
        "usage": Usage(12_300, 900, reasoning=400), "reserved_usd": 0.5, "cost_usd": 0.0123, "failure": None,
        "detail": "", "skills": (("arange-power-of-two", 3),), "dropped": ("1 of 5 of history",),
        "started_at": 0.0, "ended_at": 1.0,
    }  # fmt: skip
    return ModelCall(**{**values, **changes})  # type: ignore[arg-type]


def test_the_terms_of_a_choice_are_told_level_by_level() -> None:
    assert choice_sentences(WHY) == [
        "at the root: candidate 3 won with 1.300 (value 1.100, exploration 0.200); ahead of growing here 1.200, "
        "2 more with less",
        "at candidate 3: growing here won with 0.500 (value 0.500, exploration 0.000, since it is owed refinements); "
        "there was nothing else",
        "step: 3 has 1 local children",
        "candidates shown: 1, 3 (the chain from 1 to 3)",
        "beam: 3, 4",
    ]


def test_requests_are_told_with_rules_what_was_left_out_and_how_they_failed() -> None:
    note = ProposalNote("llm", "failed", {}, None, "no code: none", 0.0, 1.0)
    failed = call(attempt=2, failure=CallFailure.NO_CODE, state=CallState.FAILED, detail="no\x1b[31m code")
    assert why_sentences(note, [call(), failed]) == [
        "asked: tuner 2, to tiny at http://localhost/v1: 12k tokens in, 900 out (400 reasoning), $0.0123",
        "rules in the prompt: arange-power-of-two (revision 3)",
        "left out of the prompt to fit: 1 of 5 of history",
        "asked: tuner 2, attempt 2, to tiny at http://localhost/v1: 12k tokens in, 900 out (400 reasoning), $0.0123",
        "rules in the prompt: arange-power-of-two (revision 3)",
        "left out of the prompt to fit: 1 of 5 of history",
        "no code: no\u241b[31m code",
        "failed: no code: none",
    ]


def test_an_open_request_tells_what_is_held_for_it() -> None:
    (sentence, *_) = why_sentences(ProposalNote("llm", "open", {}, None, None, 0.0, None), [call(ended_at=None)])
    assert sentence.endswith("being answered, $0.5000 is held for it")


def test_a_recipe_is_told_with_its_parameters() -> None:
    recipe = {"structure": "rows/looped", "parameters": {"BLOCK": 128, "num_warps": 4}}
    note = ProposalNote("compiler", "answered", {}, recipe, None, 0.0, 1.0)
    assert why_sentences(note, []) == ["made by the compiler as rows/looped with BLOCK 128, num_warps 4"]


@pytest.mark.parametrize(
    ("spending", "status"),
    [
        (Spending(), ""),
        (Spending(calls=2, tokens_in=9_000, tokens_out=900, usd=0.25, reserved_usd=0.05), "$0.3000 of $5"),
        (Spending(calls=2, tokens_in=90_000, tokens_out=900, unpriced=2), "91k tokens"),
    ],
)
def test_the_status_line_tells_money_or_else_tokens(spending: Spending, status: str) -> None:
    assert spent_text(spending, 5.0) == status


def test_what_a_run_spent_is_told_with_the_rest_and_the_failures() -> None:
    spending = Spending(
        calls=3, tokens_in=2_500_000, tokens_out=9_000, tokens_reasoning=4_000, usd=1.0, reserved_usd=0.1,
        failures={"no_code": 1, "refused": 4},
    )  # fmt: skip
    assert spending_lines(spending, 10, 30, None) == [
        "sent 3 prompts: 2.5M tokens in, 9000 out, 4000 of them reasoning",
        "spent $1.00, $0.1000 more is held for open requests; the other 20 candidates would cost about $2.00 more",
        "requests that brought nothing: 4 refused, 1 no code",
    ]
    assert "the money will end before the budget" in spending_lines(spending, 10, 30, 2.5)[1]


def test_a_model_without_a_price_is_said_plainly() -> None:
    lines = spending_lines(Spending(calls=1, tokens_in=10, tokens_out=5, unpriced=1), 1, 2, None)
    assert lines[1:] == ["no price is known for the model, so only tokens are counted"]
    assert spending_lines(Spending(), 1, 2, None) == []


def test_amounts_have_the_digits_that_matter() -> None:
    assert [money_text(0.01234), money_text(12.345)] == ["$0.0123", "$12.35"]
    assert [tokens_text(950), tokens_text(12_345), tokens_text(3_400_000)] == ["950", "12k", "3.4M"]
