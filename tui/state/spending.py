"""What a run's requests to models came to, in words."""

from __future__ import annotations

from engine.records import ModelCall, Spending
from tui.state.words import clean, plural


def money_text(usd: float) -> str:
    """An amount with as many digits as matter."""
    return f"${usd:.4f}" if usd < 1 else f"${usd:.2f}"


def tokens_text(count: int) -> str:
    """A number of tokens, rounded."""
    for limit, scale, unit in ((10_000, 1, ""), (1_000_000, 1_000, "k")):
        if count < limit:
            return f"{count / scale:.0f}{unit}"
    return f"{count / 1_000_000:.1f}M"


def spent_text(spending: Spending, max_usd: float | None) -> str:
    """Money for the status line, tokens where no price is known, "" where no model was asked."""
    if not spending.calls:
        return ""
    if spending.unpriced == spending.calls:
        return f"{tokens_text(spending.tokens_in + spending.tokens_out)} tokens"
    limit = f" of ${max_usd:g}" if max_usd is not None else ""
    return f"{money_text(spending.usd + spending.reserved_usd)}{limit}"


def spending_lines(spending: Spending, judged: int, budget: int, max_usd: float | None) -> list[str]:
    """What was asked, what it cost, what failed, and what the rest may cost; nothing where no model was asked."""
    if not spending.calls:
        return []
    reasoning = f", {tokens_text(spending.tokens_reasoning)} of them reasoning" if spending.tokens_reasoning else ""
    lines = [
        f"sent {plural(spending.calls, 'prompt')}: {tokens_text(spending.tokens_in)} tokens in, "
        f"{tokens_text(spending.tokens_out)} out{reasoning}"
    ]
    if spending.unpriced:
        which = "the model" if spending.unpriced == spending.calls else plural(spending.unpriced, "request")
        lines.append(f"no price is known for {which}, so only tokens are counted")
    if spending.unpriced < spending.calls:
        held = f", {money_text(spending.reserved_usd)} more is held for open requests" if spending.reserved_usd else ""
        limit = f" of ${max_usd:g}" if max_usd is not None else ""
        lines.append(f"spent {money_text(spending.usd)}{limit}{held}{_rest(spending, judged, budget, max_usd)}")
    if spending.failures:
        causes = ", ".join(
            f"{count} {clean(cause.replace('_', ' '))}"
            for cause, count in sorted(spending.failures.items(), key=lambda pair: (-pair[1], pair[0]))
        )
        lines.append(f"requests that brought nothing: {causes}")
    return lines


def _rest(spending: Spending, judged: int, budget: int, max_usd: float | None) -> str:
    """What the rest of the budget costs at the present rate, no more than the limit leaves."""
    if not judged or budget <= judged or not spending.usd:
        return ""
    rest = spending.usd / judged * (budget - judged)
    if max_usd is not None and rest > max_usd - spending.usd:
        return "; the money will end before the budget of candidates does"
    return f"; the other {budget - judged} candidates would cost about {money_text(rest)} more"


def call_line(call: ModelCall) -> str:
    """One request on one line."""
    usage = call.usage
    counted = "" if usage.reported else ", estimated"
    thought = f" ({tokens_text(usage.reasoning)} reasoning)" if usage.reasoning else ""
    cost = "price not known" if call.cost_usd is None else money_text(call.cost_usd)
    came = f"{tokens_text(usage.input)} tokens in, {tokens_text(usage.output)} out{thought}{counted}, {cost}"
    if call.ended_at is None:
        held = f", {money_text(call.reserved_usd)} is held for it" if call.reserved_usd is not None else ""
        came = f"being answered{held}"
    again = f", attempt {call.attempt}" if call.attempt > 1 else ""
    return f"{call.template} {call.version}{again}, to {clean(call.model)} at {clean(call.destination)}: {came}"
