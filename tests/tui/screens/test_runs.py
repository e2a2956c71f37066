from __future__ import annotations

from pathlib import Path

from engine.records import RunState
from engine.store.control import Control
from tests.tui.grove import Grove
from tests.tui.pilots import cockpit, text_of, until
from tui.app import farewell
from tui.screens.runs import RunsScreen


async def test_runs_are_listed_newest_first_with_how_they_do(grove: Grove, db: Path) -> None:
    grove.grow(6, "a new best", 2.1)
    other = Grove(db, name="second [/b]", budget=10)
    other.store.set_state(RunState.DONE, ended_by="budget")
    other.close(release=True)
    app = cockpit(db)
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: "second [/b]" in text_of(app), "the runs")
        rows = [line.split() for line in text_of(app).splitlines()[2:4]]
        assert rows[0][:3] == ["2", "second", "[/b]"]
        assert "done" in rows[0]
        assert {"1", "softmax", "running", "8/40", "2.10x", "alive"} <= set(rows[1])
        assert "1 at work" in text_of(app)
        await pilot.press("j")
        grove.grow(6, "an even newer best", 2.4)
        await until(pilot, lambda: "2.40x" in text_of(app), "the row follows")
        screen = app.screen
        assert isinstance(screen, RunsScreen)
        assert screen.table.cursor_row == 1


async def test_no_runs_yet_says_how_to_start_one(db: Path) -> None:
    with Control(db):
        pass
    app = cockpit(db)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "kernelgrove demo" in text_of(app), "how to start")
        await pilot.press("enter", "2")
        await until(pilot, lambda: "no run is open" in text_of(app), "and no run is open")
        await pilot.press("p", "x", "a", "e", "y", "b", "S", "B")
        await pilot.press("q", "q")
        await until(pilot, lambda: not app.is_running, "left")


async def test_a_database_that_cannot_be_read_is_said_and_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    app = cockpit(path)
    async with app.run_test(size=(120, 24)) as pilot:
        await until(pilot, lambda: "there is no database" in text_of(app), "the sentence")
        grove = Grove(path)
        await until(pilot, lambda: "softmax" in text_of(app), "the run appears")
        grove.close()


async def test_leaving_says_which_searches_go_on(grove: Grove, db: Path) -> None:
    assert farewell(db, grove.run) == (
        "The search goes on: run 1 goes on without this screen. Look again with: kernelgrove attach 1"
    )
    grove.store.release()
    assert farewell(db, grove.run) == ""
