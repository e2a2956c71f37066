from __future__ import annotations

from pathlib import Path

import pytest

from tests.tui.grove import Grove
from tests.tui.pilots import cockpit, opened_run, text_of


def colours_of(line: object) -> set[object]:
    """The colours that a strip asks the terminal for."""
    return {
        colour
        for segment in line  # type: ignore[attr-defined]
        if segment.style is not None
        for colour in (segment.style.color, segment.style.bgcolor)
        if colour is not None and not colour.is_default
    }


async def test_no_color_asks_for_no_colour_and_states_stay_readable(
    grove: Grove, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with opened_run(db, grove.run, (120, 30)) as (_, app, screen):
        assert app.theme == "ansi-dark"
        assert "wrong ✗" in text_of(app)
        drawn = screen.tree_view.render_lines(screen.tree_view.size.region)
        assert all(not colours_of(strip) for strip in drawn)


@pytest.mark.parametrize(("term", "theme"), [("xterm-256color", "textual-dark"), ("linux", "ansi-dark")])
async def test_few_colours_get_the_plain_theme(
    grove: Grove, db: Path, monkeypatch: pytest.MonkeyPatch, term: str, theme: str
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.delenv("COLORTERM")
    assert cockpit(db).theme == theme


async def test_ascii_draws_nothing_but_ascii(grove: Grove, db: Path) -> None:
    async with opened_run(db, grove.run, (80, 24), ascii=True) as (pilot, app, _):
        for _pane in range(4):
            body = text_of(app).replace("␛", "")  # of the data, not of the drawing
            assert body.isascii(), [character for character in body if not character.isascii()]
            await pilot.press("tab")
