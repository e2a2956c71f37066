from __future__ import annotations

from pathlib import Path

from tests.tui.grove import Grove
from tests.tui.pilots import cockpit, opened_run, run_screen, text_of, until
from tui.screens.run import RunScreen
from tui.screens.runs import RunsScreen


async def test_enter_opens_the_run_and_q_goes_back(grove: Grove, db: Path) -> None:
    app = cockpit(db)
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: "softmax" in text_of(app), "the run is listed")
        assert isinstance(app.screen, RunsScreen)
        await pilot.press("enter")
        await until(
            pilot, lambda: isinstance(app.screen, RunScreen) and len(run_screen(app).view.tree) == 12, "the tree"
        )
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen), "back at the runs")


async def test_new_candidates_appear_without_moving_the_cursor(grove: Grove, db: Path) -> None:
    async with opened_run(db, grove.run) as (pilot, app, screen):
        await pilot.press("j")
        assert screen.view.tree.cursor == 2
        number = grove.grow(1, "a late one", 1.5)
        await until(pilot, lambda: number in screen.view.tree, "the candidate arrives")
        assert screen.view.tree.cursor == 2
        assert "1 new (f)" in text_of(app)
        await pilot.press("f")
        await until(pilot, lambda: screen.view.tree.cursor == number, "following")
        assert "FOLLOW" in text_of(app)


async def test_markup_and_escape_sequences_in_a_reason_are_only_text(grove: Grove, db: Path) -> None:
    async with opened_run(db, grove.run, (200, 50)) as (pilot, app, screen):
        await pilot.press("j", "j", "j", "j")
        await until(pilot, lambda: screen.detail is not None and screen.detail.wanted.number == 3, "3 is read")
        shown = text_of(app)
        assert "[/b] closes" in shown
        assert "\x1b" not in shown
