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
        await until(pilot, lambda: "1 new (f)" in text_of(app), "it is counted")
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


async def test_f_then_moving_ends_following(grove: Grove, db: Path) -> None:
    async with opened_run(db, grove.run) as (pilot, app, screen):
        await pilot.press("f")
        await until(pilot, lambda: screen.view.tree.cursor == 12, "the newest")
        await pilot.press("k")
        assert not screen.view.tree.following
        assert "FOLLOW" not in text_of(app)


async def test_folding_with_h_and_l(grove: Grove, db: Path) -> None:
    async with opened_run(db, grove.run) as (pilot, _, screen):
        await pilot.press("h")
        assert screen.view.tree.rows[:2] == [1, 5]
        await pilot.press("l", "l")
        assert screen.view.tree.cursor == 2
        await pilot.press("G")
        assert screen.view.tree.cursor == 12
        await pilot.press("g")
        assert screen.view.tree.cursor == 1


async def test_the_filter_works_while_it_is_typed_and_escape_brings_the_old_one_back(grove: Grove, db: Path) -> None:
    async with opened_run(db, grove.run) as (pilot, app, screen):
        await pilot.press("slash", *"state:inc")
        await until(pilot, lambda: screen.view.tree.rows == [1, 3], "the rows that pass and their parents")
        await pilot.press("enter")
        await until(pilot, lambda: "1 of 12" in text_of(app), "the count")
        await pilot.press("slash", "space", *"x:")
        await until(pilot, lambda: "there is no field" in text_of(app), "what is wrong")
        await pilot.press("escape")
        assert screen.view.tree.filter is not None
        assert screen.view.tree.filter.text == "state:inc"
        await pilot.press("escape")
        assert len(screen.view.tree.rows) == 12
        await pilot.press("slash", *"by:compiler speedup>1.4", "enter", "n", "n")
        assert screen.view.tree.cursor == 6
        await pilot.press("N")
        assert screen.view.tree.cursor == 2


async def test_b_goes_to_the_best_and_d_changes_what_it_is_compared_with(grove: Grove, db: Path) -> None:
    async with opened_run(db, grove.run) as (pilot, app, _screen):
        await pilot.press("b")
        await until(pilot, lambda: "6 against parent 5" in text_of(app), "against the parent")
        await pilot.press("k", "j", "j")
        await until(pilot, lambda: "7 against parent 6" in text_of(app), "the next")
        for title in ("7 against root 5", "7 against best 6", "7, source", "7 against parent 6"):
            await pilot.press("d")
            await until(pilot, lambda title=title: title in text_of(app), title)  # type: ignore[misc]


async def test_one_pane_at_a_time_on_a_small_terminal(grove: Grove, db: Path) -> None:
    async with opened_run(db, grove.run, (80, 24)) as (pilot, _app, screen):
        shown = []
        for _ in range(5):
            visible = [name for name in ("tree", "diff", "inspector", "log") if screen.pane(name).region.height]
            shown.append(visible)
            await pilot.press("tab")
        assert shown == [["tree"], ["diff"], ["inspector"], ["log"], ["tree"]]
        await pilot.press("shift+tab", "enter")
        await until(pilot, lambda: screen.focused is screen.diff_view, "Enter is the diff")


async def test_zoom_and_sizes(grove: Grove, db: Path) -> None:
    async with opened_run(db, grove.run, (200, 50)) as (pilot, _, screen):

        def visible() -> set[str]:
            return {name for name in ("tree", "chart", "diff", "inspector", "log") if screen.pane(name).region.height}

        assert visible() == {"tree", "chart", "diff", "inspector", "log"}
        await pilot.press("z")
        await until(pilot, lambda: visible() == {"tree"}, "the tree alone")
        await pilot.press("z")
        await pilot.resize_terminal(120, 30)
        await until(pilot, lambda: visible() == {"tree", "diff", "inspector"}, "three panes")
        await pilot.press("tab", "tab", "tab")
        await until(pilot, lambda: visible() == {"tree", "diff", "log"}, "the log in place of the inspector")


async def test_a_terminal_that_is_too_small_says_so_and_recovers(grove: Grove, db: Path) -> None:
    async with opened_run(db, grove.run, (80, 24)) as (pilot, app, _):
        await pilot.resize_terminal(50, 12)
        await until(pilot, lambda: "too small: 50x12" in text_of(app), "too small")
        assert "1 softmax" in text_of(app)
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: "online softmax" in text_of(app), "the tree again")


async def test_hunks_context_and_wrapping(grove: Grove, db: Path) -> None:
    async with opened_run(db, grove.run, (80, 24)) as (pilot, _app, screen):
        await pilot.press("j")
        await until(pilot, lambda: screen.detail is not None and screen.detail.wanted.number == 2, "2 is read")
        assert screen.detail is not None
        rows = len(screen.detail.diff.rows)
        await pilot.press("enter", "right_curly_bracket", "right_curly_bracket", "right_curly_bracket")
        await until(pilot, lambda: screen.detail is not None and len(screen.detail.diff.rows) > rows, "more context")
        await pilot.press("right_square_bracket")
        await until(pilot, lambda: screen.diff_view.scroll_offset.y > 0, "the next hunk")
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: screen.diff_view.scroll_offset.y == 0, "the hunk before")
        lines = screen.diff_view.line_count()
        await pilot.press("w")
        assert screen.diff_view.line_count() < lines


async def test_the_log_switches_between_run_and_candidate(grove: Grove, db: Path) -> None:
    async with opened_run(db, grove.run, (80, 24)) as (pilot, app, screen):
        screen.go_to(4)
        await until(pilot, lambda: screen.detail is not None and screen.detail.wanted.number == 4, "4 is read")
        screen.log_view.focus()
        await until(pilot, lambda: "asked of compiler" in text_of(app), "the run's log")
        await pilot.press("l")
        await until(pilot, lambda: "[/b] is no tag here" in text_of(app), "the log of its process")


async def test_help_lists_the_keys_that_work_here_and_the_palette_finds_them(grove: Grove, db: Path) -> None:
    async with opened_run(db, grove.run, (120, 50)) as (pilot, app, screen):
        await pilot.press("question_mark")
        await until(pilot, lambda: "take a subtree out of the search" in text_of(app), "help")
        assert "write a new rule" not in text_of(app)
        await pilot.press("q")
        await pilot.press("colon")
        await pilot.press(*"diff base")
        await until(pilot, lambda: "compare with parent, root or best" in text_of(app), "the palette finds it")
        await pilot.press("enter")
        await pilot.press("enter")
        await until(pilot, lambda: screen.base == "root", "and does it")


async def test_a_run_that_does_not_exist_is_said(grove: Grove, db: Path) -> None:
    app = cockpit(db, 99)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "there is no run 99" in text_of(app), "the sentence")
