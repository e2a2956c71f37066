"""The cockpit: screens on the database. It owns nothing that a search needs and may end at any time."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import ClassVar

from rich.console import Console
from textual.app import App
from textual.binding import BindingType
from textual.command import Provider
from textual.driver import Driver

from engine.store.database import StoreError
from engine.store.reader import Reader
from tui.context import Context, StartEngine
from tui.guardian import guarded
from tui.keys import Scope, bindings
from tui.palette import KeyCommands
from tui.poller import DatabaseSources, Sources
from tui.screens.approvals import ApprovalsScreen
from tui.screens.base import CockpitScreen
from tui.screens.help import HelpScreen
from tui.screens.run import RunScreen
from tui.screens.runs import RunsScreen
from tui.screens.skills import SkillsScreen
from tui.state.words import ASCII, UNICODE

PLAIN_THEME = "ansi-dark"
THEME = "textual-dark"


class Cockpit(App[None]):
    """Screens for runs, one run, approvals and skills.

    Args:
        db: the database; it must exist.
        run: the run to open, None for the list of all.
        ascii: draw with ASCII only.
        start_engine: starts an engine for a run and returns a sentence about it.
        now: the present time in Unix seconds.
        sources: where the screens get their data.
        poll_seconds: the pause between two looks at the database.
    """

    TITLE = "Kernelgrove"
    CSS_PATH: ClassVar[list[str | PurePath]] = ["cockpit.tcss"]
    BINDINGS: ClassVar[list[BindingType]] = list(bindings(Scope.EVERYWHERE))
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {KeyCommands}
    ENABLE_COMMAND_PALETTE = True

    def __init__(
        self,
        db: Path,
        *,
        run: int | None = None,
        ascii: bool = False,  # noqa: A002
        start_engine: StartEngine | None = None,
        now: Callable[[], float] = time.time,
        sources: Sources | None = None,
        poll_seconds: float = 0.5,
        driver_class: type[Driver] | None = None,
    ) -> None:
        plain = "NO_COLOR" in os.environ or Console(force_terminal=True).color_system in (None, "standard")
        super().__init__(driver_class=driver_class, ansi_color=True if plain else None)
        glyphs = ASCII if ascii else UNICODE
        self.context = Context(db, glyphs, now, start_engine, poll_seconds, sources or DatabaseSources())
        self.last_run = run
        self._first_run = run
        self.animation_level = "none"
        self.theme = PLAIN_THEME if plain else THEME
        self.set_class(ascii, "-ascii")
        self._run_screen = RunScreen(self.context, run)
        self.add_mode("runs", lambda: RunsScreen(self.context))
        self.add_mode("run", lambda: self._run_screen)
        self.add_mode("approvals", lambda: ApprovalsScreen(self.context))
        self.add_mode("skills", lambda: SkillsScreen(self.context))

    async def on_mount(self) -> None:
        """Opens the first screen and listens for signals."""
        self._listen()
        await self.switch_mode("run" if self._first_run is not None else "runs")

    def _listen(self) -> None:
        """SIGTERM and a vanished terminal end the app the orderly way, which restores the terminal."""
        if self.is_headless:
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.end_by_signal, number)

    def end_by_signal(self, number: int) -> None:
        """Leaves with the status that the signal's number gives."""
        self.exit(return_code=128 + number)

    # Between screens

    def action_show_mode(self, mode: str) -> None:
        """Opens the screen of a digit."""
        if self.current_mode != mode:
            self.switch_mode(mode)

    def on_cockpit_screen_open_run(self, message: CockpitScreen.OpenRun) -> None:
        """Opens a run."""
        self.last_run = message.run
        self._run_screen.open_run(message.run, message.candidate)
        self.action_show_mode("run")

    def action_help(self) -> None:
        """Shows the keys that work here."""
        if isinstance(self.screen, CockpitScreen):
            self.push_screen(HelpScreen(self.screen.scopes(), self.context.glyphs))

    async def action_back(self) -> None:
        """Back to the runs; from there, out."""
        if self.current_mode == "runs":
            self.exit()
        else:
            await self.switch_mode("runs")

    def action_leave(self) -> None:
        """Leaves; the searches go on."""
        self.exit()


def farewell(db: Path, run: int | None) -> str:
    """What is said after the screen has gone: which searches go on without it."""
    try:
        with Reader(db) as reader:
            alive = [each.run.id for each in reader.runs() if each.engine is not None and each.engine.alive]
    except StoreError:
        return ""
    if not alive:
        return ""
    shown = run if run in alive else alive[0]
    which = f"run {alive[0]} goes on" if len(alive) == 1 else f"runs {', '.join(map(str, sorted(alive)))} go on"
    return f"The search goes on: {which} without this screen. Look again with: kernelgrove attach {shown}"


def run_cockpit(
    db: Path,
    *,
    run: int | None = None,
    ascii: bool = False,  # noqa: A002
    start_engine: StartEngine | None = None,
) -> int:
    """Runs the cockpit in this terminal until the person leaves.

    Returns:
        0, or 128 and the number of the signal that ended it.
    """

    def body() -> int:
        from tui.terminal import SteadyDriver

        app = Cockpit(
            db,
            run=run,
            ascii=ascii or not _speaks_utf8(),
            start_engine=start_engine,
            driver_class=SteadyDriver,
        )
        app.run()
        if not app.return_code and (words := farewell(db, app.last_run)):
            print(words)
        return app.return_code or 0

    return guarded(body)


def _speaks_utf8() -> bool:
    encoding = (sys.__stdout__.encoding if sys.__stdout__ else "") or ""
    return encoding.lower().replace("-", "") == "utf8"
