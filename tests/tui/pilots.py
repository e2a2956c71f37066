"""Drives a cockpit in tests: waits for conditions, never for time."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from tests.tui.grove import NOW
from tui.app import Cockpit
from tui.screens.run import RunScreen

WAIT_S = 10.0

Steps = Pilot[None]


def cockpit(db: Path, run: int | None = None, **more: Any) -> Cockpit:
    """A cockpit with a fixed clock that looks at the database often."""
    return Cockpit(db, run=run, now=lambda: NOW, poll_seconds=0.02, **more)


async def until(pilot: Steps, condition: Callable[[], object], what: str = "") -> None:
    """Lets the app work until a condition holds; fails if it never does."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"never happened: {what or condition}\n{text_of(pilot.app)}")
        await pilot.pause(0.01)
    await pilot.pause()


def text_of(app: Any) -> str:
    """The whole screen as text."""
    return "\n".join("".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips())


def run_screen(app: Cockpit) -> RunScreen:
    """The run screen, which must be the present one."""
    screen = app.screen
    assert isinstance(screen, RunScreen)
    return screen


@asynccontextmanager
async def opened_run(
    db: Path, run: int, size: tuple[int, int] = (120, 30), **more: Any
) -> AsyncIterator[tuple[Steps, Cockpit, RunScreen]]:
    """A cockpit on a run whose candidate under the cursor has been read."""
    app = cockpit(db, run, **more)
    async with app.run_test(size=size) as pilot:
        await until(
            pilot, lambda: isinstance(app.screen, RunScreen) and run_screen(app).detail is not None, "the first read"
        )
        yield pilot, app, run_screen(app)
