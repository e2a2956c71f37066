"""`report`: what happened to the searches since a moment, in Markdown."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import click

from engine.store.reader import Reader, RunOverview
from tui.commands.context import CommandFailed, Options
from tui.commands.look import find_run
from tui.state.report import RunNews, report

_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*(m|min|h|d)")
_HOURS = {"m": 1 / 60, "min": 1 / 60, "h": 1, "d": 24}
_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


@click.command("report")
@click.argument("runs", metavar="[RUN]...", type=int, nargs=-1)
@click.option("--since", default="24h", show_default=True, metavar="WHEN", help="8h, 2d, 19:00, or 2026-04-01 [19:00].")
@click.pass_obj
def report_command(options: Options, runs: tuple[int, ...], since: str) -> None:
    """Say in Markdown what happened to all searches, or to some, since a moment."""
    moment = since_when(since, datetime.now().astimezone())
    with Reader(options.settings.db) as reader:
        overviews = [find_run(reader, run) for run in runs] if runs else list(reversed(reader.runs()))
        click.echo(report([_news(reader, overview, moment) for overview in overviews], moment), nl=False)


def _news(reader: Reader, overview: RunOverview, since: float) -> RunNews:
    run = overview.run.id
    return RunNews(
        overview,
        reader.candidates(run),
        reader.events_since(run, since),
        reader.best_speedup_at(run, since),
        reader.spending(run),
    )


def since_when(text: str, now: datetime) -> float:
    """The moment that a person means, in Unix seconds: so long ago, the last time a clock showed it, or a date.

    Raises:
        CommandFailed: it cannot be read, or lies ahead.
    """
    text = text.strip()
    if ago := _AGO.fullmatch(text):
        return (now - timedelta(hours=float(ago[1]) * _HOURS[ago[2]])).timestamp()
    if clock := _CLOCK.fullmatch(text):
        moment = now.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0)
        return (moment if moment <= now else moment - timedelta(days=1)).timestamp()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CommandFailed(f"--since {text!r} is no moment; write 8h, 2d, 19:00 or 2026-04-01 19:00") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo)
    if moment > now:
        raise CommandFailed(f"--since {text} lies ahead; name a moment that has been")
    return moment.timestamp()
