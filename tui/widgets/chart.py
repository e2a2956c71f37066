"""The best so far, drawn anew only when its picture differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.geometry import Region

from tui.state.chart import Progress, chart_rows
from tui.state.words import Glyphs, Piece
from tui.widgets.lines import LineView, changed_cells


class Chart(LineView, can_focus=False):
    """Draws a `Progress`."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"line--bar"}

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._glyphs = glyphs
        self._progress = Progress()
        self._budget = 1
        self._rows: list[tuple[Piece, ...]] = []

    def show(self, progress: Progress, budget: int) -> None:
        """Shows another curve."""
        self._progress, self._budget = progress, budget
        self._draw()

    def on_resize(self) -> None:
        """Draws for the new size."""
        self._draw()

    def _draw(self) -> None:
        rows = [
            tuple((text, "line--bar" if tone == "bar" else tone) for text, tone in row)
            for row in chart_rows(self._progress, self.room, self.size.height, self._budget, self._glyphs)
        ]
        before, self._rows = self._rows, rows
        if len(before) != len(rows):
            self.refresh()
            return
        for y, (old, new) in enumerate(zip(before, rows, strict=True)):
            if (span := changed_cells(old, new)) is not None:
                self.refresh(Region(span[0], y, span[1] - span[0], 1))

    def line_count(self) -> int:
        """One line a row of the picture."""
        return len(self._rows)

    def line(self, index: int, width: int) -> Sequence[Piece]:
        """A row of the picture."""
        return self._rows[index]
