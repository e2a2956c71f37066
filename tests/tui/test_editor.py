"""The person's editor: the screen comes back from it, whatever happened to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from textual.app import App

from tui.editor import edit_text


class Stage(App[object]):
    """An app with a terminal, which steps aside the way Textual does: an error in the block keeps it away."""

    aside = False

    @property
    def is_headless(self) -> bool:
        return False

    @contextmanager
    def suspend(self) -> Iterator[None]:
        self.aside = True
        yield
        self.aside = False


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("/absent/editor", "cannot be started"),
        ("false", "ended with status 1"),
        ("vi 'unclosed", "EDITOR is not a command line"),
        ("true", ""),
    ],
)
def test_the_screen_comes_back_from_an_editor_that_fails(
    monkeypatch: pytest.MonkeyPatch, command: str, says: str
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", command)
    app = Stage()
    edited = edit_text(app, "x = 1\n", "from_1.py")
    assert not app.aside
    assert says in edited.problem and bool(edited.problem) == bool(says)
    assert edited.text is None
    edited.forget()
    assert not edited.file.parent.exists()
