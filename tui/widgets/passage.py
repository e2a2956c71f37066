"""A text that knows how to lay itself out for any width."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tui.state.words import Piece, Tone
from tui.widgets.lines import LineView

Layout = Callable[[int], list[tuple[Piece, ...]]]
"""Makes the rows for a width in cells."""


class Passage(LineView):
    """Draws rows that are made anew for each width."""

    def __init__(self, note: str = "", *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._note = note
        self._layout_rows: Layout | None = None
        self._rows: list[tuple[Piece, ...]] = []

    def show(self, layout: Layout | None, *, keep_place: bool = False) -> None:
        """Shows another text from its start, or from where the window is."""
        before = self._rows
        self._layout_rows = layout
        self._make()
        if self._rows != before:
            self.lines_changed()
        if not keep_place:
            self.scroll_to(y=0, animate=False)

    def on_resize(self) -> None:
        """Lays out anew."""
        self._make()

    def _make(self) -> None:
        self._rows = self._layout_rows(self.room or 80) if self._layout_rows is not None else []

    def line_count(self) -> int:
        """One line a row."""
        return len(self._rows) or 1

    def line(self, index: int, width: int) -> Sequence[Piece]:
        """A row."""
        return self._rows[index] if self._rows else [(f" {self._note}", Tone.MUTED)]
