from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from engine.records import CandidateState, CommandKind
from engine.store.reader import Reader
from tests.tui.grove import Grove
from tests.tui.pilots import Steps, cockpit, text_of, until
from tui.app import Cockpit
from tui.screens.approvals import ApprovalsScreen
from tui.screens.run import RunScreen


@asynccontextmanager
async def opened_queue(
    db: Path, size: tuple[int, int] = (120, 30)
) -> AsyncIterator[tuple[Steps, Cockpit, ApprovalsScreen]]:
    app = cockpit(db)
    async with app.run_test(size=size) as pilot:
        await pilot.press("3")
        await until(
            pilot, lambda: isinstance(app.screen, ApprovalsScreen) and app.screen.detail is not None, "a proposal"
        )
        screen = app.screen
        assert isinstance(screen, ApprovalsScreen)
        yield pilot, app, screen


def asked(db: Path, run: int) -> list[tuple[CommandKind, int | None, str]]:
    with Reader(db) as reader:
        return [(each.kind, each.candidate, each.argument) for each in reversed(reader.commands(run))]


async def test_the_queue_shows_code_diff_and_where_it_came_from(grove: Grove, db: Path) -> None:
    async with opened_queue(db) as (pilot, app, _screen):
        shown = text_of(app)
        assert "? 2 waiting" in shown
        assert "9 against parent 2" in shown
        assert "265, num_warps=4" in shown
        assert "expand here" in shown
        for title in ("9 against best 6", "9, source", "9 against parent 2"):
            await pilot.press("d")
            await until(pilot, lambda title=title: title in text_of(app), title)  # type: ignore[misc]


async def test_approving_takes_a_proposal_out_of_the_queue(grove: Grove, db: Path) -> None:
    async with opened_queue(db) as (pilot, _app, screen):
        await pilot.press("a")
        await until(pilot, lambda: asked(db, grove.run) == [(CommandKind.APPROVE, 9, "")], "asked")
        grove.store.obey()
        await until(pilot, lambda: list(screen.waiting) == [(1, 10)], "the queue follows")
        assert grove.state(9) is CandidateState.QUEUED


async def test_rejecting_with_a_reason_and_a_newcomer_does_not_move_the_cursor(grove: Grove, db: Path) -> None:
    async with opened_queue(db) as (pilot, _app, screen):
        await pilot.press("j")
        assert screen.queue.current == (1, 10)
        grove.propose(1, "one more", gate=True)
        await until(pilot, lambda: len(screen.waiting) == 3, "the newcomer")
        assert screen.queue.current == (1, 10)
        await pilot.press("r", *"no", "enter")
        await until(pilot, lambda: asked(db, grove.run) == [(CommandKind.REJECT, 10, "no")], "asked")
        grove.store.obey()
        await until(pilot, lambda: list(screen.waiting) == [(1, 9), (1, 13)], "the queue follows")


async def test_marked_proposals_of_several_runs_are_approved_together(grove: Grove, db: Path) -> None:
    other = Grove(db, name="second [/b]", gate=True)
    other.propose(None, "another start")
    async with opened_queue(db) as (pilot, app, screen):
        await until(pilot, lambda: len(screen.waiting) == 3, "all runs")
        assert "second [/b]" in text_of(app)
        await pilot.press("space", "space", "space")
        await until(pilot, lambda: "3 marked" in text_of(app), "marked")
        await pilot.press("A")
        await until(
            pilot, lambda: len(asked(db, grove.run)) == 2 and len(asked(db, other.run)) == 1, "asked of both runs"
        )
    other.close()


async def test_enter_opens_the_proposal_in_its_run(grove: Grove, db: Path) -> None:
    async with opened_queue(db) as (pilot, app, _):
        await pilot.press("j", "enter")
        await until(
            pilot, lambda: isinstance(app.screen, RunScreen) and app.screen.view.tree.cursor == 10, "in its run"
        )


async def test_an_empty_queue_says_so(db: Path) -> None:
    grove = Grove(db)
    app = cockpit(db)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("3")
        await until(pilot, lambda: "nothing waits for approval" in text_of(app), "the note")
        await pilot.press("a", "r", "A", "enter", "space", "j")
        assert asked(db, grove.run) == []
    grove.close()
