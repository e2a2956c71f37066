"""Whole screens as pictures: `make snapshots` draws them anew after a change that is meant."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import pytest
from textual.app import App
from textual.pilot import Pilot

from tests.tui.grove import Grove
from tests.tui.pilots import cockpit, run_screen, until
from tui.app import Cockpit
from tui.screens.approvals import ApprovalsScreen
from tui.screens.run import RunScreen
from tui.screens.runs import RunsScreen
from tui.screens.skills import SkillsScreen

SIZES = [(80, 24), (120, 30), (200, 50)]


class Compare(Protocol):
    """Compares the app's picture with the one that was accepted."""

    def __call__(
        self, app: App[None], *, terminal_size: tuple[int, int], run_before: Callable[[Pilot[None]], Awaitable[None]]
    ) -> bool: ...


def named(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


@pytest.fixture
def still(db: Path, monkeypatch: pytest.MonkeyPatch) -> Grove:
    """A grove at fixed times; the path of its database is the same everywhere."""
    grove = Grove(db)
    grove.plant()
    grove.fix_times()
    monkeypatch.chdir(db.parent)
    return grove


def app_of(run: int | None = None, **more: bool) -> Cockpit:
    return cockpit(Path("runs.db"), run, **more)


async def candidate_read(pilot: Pilot[None], number: int) -> None:
    """Waits until a candidate is under the cursor and was read."""
    app = pilot.app
    assert isinstance(app, Cockpit)

    def ready() -> bool:
        detail = run_screen(app).detail if isinstance(app.screen, RunScreen) else None
        return detail is not None and detail.wanted.number == number

    await until(pilot, ready, f"{number} is read")


@pytest.mark.parametrize("size", SIZES, ids=named)
def test_run(snap_compare: Compare, still: Grove, size: tuple[int, int]) -> None:
    async def before(pilot: Pilot[None]) -> None:
        await candidate_read(pilot, 1)
        await pilot.press("b")
        await candidate_read(pilot, 6)

    assert snap_compare(app_of(still.run), terminal_size=size, run_before=before)


@pytest.mark.parametrize("pane", ["diff", "inspector", "log"])
def test_one_pane(snap_compare: Compare, still: Grove, pane: str) -> None:
    async def before(pilot: Pilot[None]) -> None:
        await candidate_read(pilot, 1)
        await pilot.press("j", "j", *["tab"] * (["diff", "inspector", "log"].index(pane) + 1))
        await candidate_read(pilot, 4)

    assert snap_compare(app_of(still.run), terminal_size=(80, 24), run_before=before)


def test_run_in_ascii(snap_compare: Compare, still: Grove) -> None:
    async def before(pilot: Pilot[None]) -> None:
        await candidate_read(pilot, 1)

    assert snap_compare(app_of(still.run, ascii=True), terminal_size=(120, 40), run_before=before)


def test_prune_question(snap_compare: Compare, still: Grove) -> None:
    async def before(pilot: Pilot[None]) -> None:
        await candidate_read(pilot, 1)
        await pilot.press("x")

    assert snap_compare(app_of(still.run), terminal_size=(80, 24), run_before=before)


def test_filter(snap_compare: Compare, still: Grove) -> None:
    async def before(pilot: Pilot[None]) -> None:
        await candidate_read(pilot, 1)
        await pilot.press("slash", *"state:inc")

    assert snap_compare(app_of(still.run), terminal_size=(80, 24), run_before=before)


@pytest.mark.parametrize("size", SIZES, ids=named)
def test_runs(snap_compare: Compare, still: Grove, size: tuple[int, int]) -> None:
    async def before(pilot: Pilot[None]) -> None:
        screen = pilot.app.screen
        assert isinstance(screen, RunsScreen)
        await until(pilot, lambda: screen.table.row_count == 1, "the run is listed")

    assert snap_compare(app_of(), terminal_size=size, run_before=before)


@pytest.mark.parametrize("size", SIZES, ids=named)
def test_approvals(snap_compare: Compare, still: Grove, size: tuple[int, int]) -> None:
    async def before(pilot: Pilot[None]) -> None:
        await pilot.press("3")
        screen = pilot.app.screen
        assert isinstance(screen, ApprovalsScreen)
        await until(pilot, lambda: screen.detail is not None, "a proposal is read")

    assert snap_compare(app_of(), terminal_size=size, run_before=before)


@pytest.mark.parametrize("size", SIZES, ids=named)
def test_skills(snap_compare: Compare, still: Grove, size: tuple[int, int]) -> None:
    async def before(pilot: Pilot[None]) -> None:
        await pilot.press("4")
        screen = pilot.app.screen
        assert isinstance(screen, SkillsScreen)
        await until(pilot, lambda: screen.detail is not None, "a rule is read")

    assert snap_compare(app_of(), terminal_size=size, run_before=before)


def test_rule_form(snap_compare: Compare, still: Grove) -> None:
    async def before(pilot: Pilot[None]) -> None:
        await pilot.press("4")
        screen = pilot.app.screen
        assert isinstance(screen, SkillsScreen)
        await until(pilot, lambda: screen.detail is not None, "a rule is read")
        await pilot.press("n")

    assert snap_compare(app_of(), terminal_size=(80, 24), run_before=before)


@pytest.mark.parametrize("size", [(80, 24), (120, 30)], ids=named)
def test_help(snap_compare: Compare, still: Grove, size: tuple[int, int]) -> None:
    async def before(pilot: Pilot[None]) -> None:
        await candidate_read(pilot, 1)
        await pilot.press("question_mark")

    assert snap_compare(app_of(still.run), terminal_size=size, run_before=before)
