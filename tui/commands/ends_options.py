"""The options that decide when a search ends, shared by what starts one and what lets one go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def ends_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options; each is named as its setting, and one that was not typed is None."""
    options = (
        click.option("--budget", type=click.IntRange(1), help="End after judging this many candidates."),
        click.option("--max-time", metavar="TIME", help="End after this much work, such as 90s, 15m or 8h."),
        click.option("--until", metavar="HH:MM", help="End at this time of day."),
        click.option("--target", metavar="GOAL", help="End once the best is 1.5x eager, or bound:0.9 of what can be."),
        click.option("--max-cost", type=float, metavar="USD", help="End before the model has cost more than this."),
        click.option("--patience", type=click.IntRange(1), help="End after this many candidates without a new best."),
    )
    for option in reversed(options):
        command = option(command)
    return command
