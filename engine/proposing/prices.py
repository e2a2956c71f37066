"""What requests to models cost: the shipped price table, a person's own prices, and the arithmetic.

The table names the endpoint that asks each price, since the same model costs otherwise elsewhere. Where a price is not
known nothing is guessed: tokens are counted, and money is not.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from urllib.parse import urlsplit

from engine.records import Spending, Step, Usage
from engine.settings import LlmSettings, Price, RunSettings, SettingsError

OPENAI_URL = "https://api.openai.com/v1"
"""Where requests go if no other address is set."""

_MILLION = 1e6
_DATED = re.compile(r"-\d{4}-\d{2}-\d{2}$")
"""How the names of a model's dated versions end; they cost what the model costs."""


def known_price(llm: LlmSettings, own: Mapping[str, Price] | None = None) -> Price | None:
    """The price of the model that the settings name: a person's own, else that of the shipped table, else None.

    Args:
        llm: the model and its address.
        own: a person's prices by model, `[prices."NAME"]` in kernelgrove.toml.
    """
    if own and llm.model in own:
        return own[llm.model]
    if llm.azure_endpoint:
        return None
    host = urlsplit(llm.base_url or OPENAI_URL).hostname
    table = _shipped().get(host or "", {})
    return table.get(llm.model) or table.get(_DATED.sub("", llm.model))


@cache
def _shipped() -> Mapping[str, Mapping[str, Price]]:
    """The shipped table: prices by host and model."""
    text = (files("engine.proposing") / "prices.toml").read_text(encoding="utf-8")
    return {
        host: {model: Price(**figures) for model, figures in models.items()}
        for host, models in tomllib.loads(text).items()
    }


def priced(llm: LlmSettings, own: Mapping[str, Price], max_cost: float | None) -> LlmSettings:
    """The settings with the price that the run will be charged by, as far as it is known.

    Raises:
        SettingsError: `max_cost` is set and cannot be kept: no price is known, or it covers not one proposal.
    """
    price = llm.price or known_price(llm, own)
    llm = llm.model_copy(update={"price": price})
    if max_cost is None:
        return llm
    if price is None:
        raise SettingsError(
            f"no price is known for {llm.model}, so --max-cost cannot be kept: give it in kernelgrove.toml, in US "
            f'dollars a million tokens, as [prices."{llm.model}"] with input = ... and output = ... (0 for a server '
            "of your own), or leave --max-cost out and bound the run with --budget"
        )
    most = most_usd(llm, Step.STRUCTURAL)
    if most is not None and most > max_cost:
        raise SettingsError(
            f"one proposal may cost up to ${most:.4f}, more than --max-cost ${max_cost:g}: raise it, or lower "
            "prompt_tokens or max_output_tokens under [run.llm] in kernelgrove.toml"
        )
    return llm


def cost_usd(price: Price | None, usage: Usage) -> float | None:
    """What a request cost, None where the price is not known."""
    if price is None:
        return None
    plain = usage.input - usage.cached - usage.cache_written
    return (
        max(plain, 0) * price.input
        + usage.cached * (price.input if price.cached is None else price.cached)
        + usage.cache_written * (price.input if price.cache_write is None else price.cache_write)
        + usage.output * price.output
    ) / _MILLION


def reserve_usd(price: Price | None, prompt_tokens: int, max_output_tokens: int) -> float | None:
    """The most a request can cost, None where the price is not known."""
    if price is None:
        return None
    dearest = max(price.input, price.cache_write or 0.0)
    return (prompt_tokens * dearest + max_output_tokens * price.output) / _MILLION


def most_usd(llm: LlmSettings, step: Step) -> float | None:
    """The most a proposal can cost before any retry: a local step asks twice. None where the price is not known."""
    one = reserve_usd(llm.price, llm.prompt_tokens, llm.max_output_tokens)
    return None if one is None else one * (2 if step is Step.LOCAL else 1)


def short_of_money(settings: RunSettings, spending: Spending, step: Step) -> str | None:
    """One sentence if what is left of a run's money may not cover another proposal; open requests count in full."""
    limit, most = settings.max_cost, most_usd(settings.llm, step)
    if limit is None or most is None or most <= limit - spending.usd - spending.reserved_usd:
        return None
    return f"${spending.usd:.4f} of ${limit:g} is spent, and another proposal may cost up to ${most:.4f}"
