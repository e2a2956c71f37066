"""Money: which price holds, what a request may cost at most, and what is refused before it starts."""

from __future__ import annotations

import re

import pytest

from engine.loop.proposers import proposer_name, ready_settings
from engine.proposing.prices import cost_usd, known_price, most_usd, priced, reserve_usd
from engine.records import Step, Usage
from engine.settings import LlmSettings, Price, RunSettings, SettingsError

PRICE = Price(input=2.0, output=8.0, cached=0.5, cache_write=2.5)


def test_a_cost_is_the_sum_over_the_kinds_of_tokens() -> None:
    usage = Usage(input=1_000_000, output=500_000, reasoning=400_000, cached=250_000, cache_written=100_000)
    assert cost_usd(PRICE, usage) == pytest.approx(0.65 * 2.0 + 0.25 * 0.5 + 0.1 * 2.5 + 0.5 * 8.0)
    assert cost_usd(Price(input=2.0, output=8.0), usage) == pytest.approx(2.0 + 4.0)
    assert cost_usd(None, usage) is None


def test_a_reserve_is_never_less_than_the_cost() -> None:
    usage = Usage(input=900, output=100, cache_written=900)
    reserve = reserve_usd(PRICE, 900, 100)
    cost = cost_usd(PRICE, usage)
    assert reserve is not None and cost is not None
    assert reserve == pytest.approx(cost)


def test_a_local_step_may_cost_two_requests() -> None:
    llm = LlmSettings(price=PRICE, prompt_tokens=1000, max_output_tokens=100)
    one, two = most_usd(llm, Step.STRUCTURAL), most_usd(llm, Step.LOCAL)
    assert one is not None
    assert two == 2 * one


def test_shipped_prices_hold_for_the_vendors_own_endpoint_and_its_dated_names() -> None:
    known = known_price(LlmSettings(model="gpt-6-sol"))
    assert known is not None
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", known.as_of)
    assert known_price(LlmSettings(model="gpt-6-sol-2026-09-22")) == known
    assert known_price(LlmSettings(model="gpt-6-sol", base_url="http://localhost:8000/v1")) is None
    assert known_price(LlmSettings(model="gpt-6-sol", azure_endpoint="https://x.openai.azure.com")) is None
    assert known_price(LlmSettings(model="gpt-unheard-of")) is None


def test_a_persons_own_price_wins() -> None:
    assert known_price(LlmSettings(model="gpt-6-sol"), {"gpt-6-sol": PRICE}) == PRICE


def test_a_limit_that_cannot_be_kept_is_refused_with_what_to_write() -> None:
    with pytest.raises(SettingsError, match=r'\[prices."mine"\]'):
        priced(LlmSettings(model="mine", base_url="http://localhost/v1"), {}, 1.0)
    with pytest.raises(SettingsError, match=r"may cost up to \$0.1880, more than --max-cost \$0.1"):
        priced(LlmSettings(model="mine"), {"mine": PRICE}, 0.1)
    free = priced(LlmSettings(model="mine"), {"mine": Price(input=0, output=0)}, 0.1)
    assert free.price == Price(input=0, output=0)


@pytest.mark.parametrize(
    ("settings", "name"),
    [({}, "compiler"), ({"llm": {"model": "tiny"}}, "mixed"), ({"proposer": "llm", "llm": {"model": "tiny"}}, "llm")],
)
def test_auto_is_mixed_where_a_model_is_named(settings: dict[str, object], name: str) -> None:
    assert proposer_name(RunSettings.model_validate(settings)) == name


def test_a_model_must_be_named() -> None:
    with pytest.raises(SettingsError, match="name it with --model"):
        ready_settings(RunSettings(proposer="mixed"), {}, {})


def test_the_address_comes_from_the_usual_variable_and_is_kept_with_the_run() -> None:
    settings = RunSettings(llm=LlmSettings(model="tiny"))
    ready = ready_settings(settings, {}, {"OPENAI_BASE_URL": "http://localhost:8000/v1"})
    assert ready.llm.base_url == "http://localhost:8000/v1"
    with pytest.raises(SettingsError, match="keys and passwords out of the address"):
        ready_settings(settings, {}, {"OPENAI_BASE_URL": "http://me:secret@localhost/v1"})
    assert ready_settings(RunSettings(), {}, {"OPENAI_BASE_URL": "nonsense"}).llm.base_url == ""


def test_a_missing_key_is_said_at_the_start() -> None:
    with pytest.raises(SettingsError, match="OPENAI_API_KEY"):
        ready_settings(RunSettings(llm=LlmSettings(model="gpt-6-sol")), {}, {})
    ready = ready_settings(RunSettings(llm=LlmSettings(model="gpt-6-sol")), {}, {"OPENAI_API_KEY": "sk-x"})
    assert ready.llm.price is not None
    assert "sk-x" not in ready.model_dump_json()
