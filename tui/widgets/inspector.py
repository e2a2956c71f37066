"""Facts with their names in one column and their values in another."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from tui.state.details import Fact
from tui.state.words import Piece, Tone
from tui.widgets.lines import LineView

NAME_WIDTH = 15


class Inspector(LineView):
    """Draws facts, their values wrapped to the width of the pane."""

    def __init__(self, *, note: str = "nothing to show yet", id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._facts: Sequence[Fact] = ()
        self._rows: list[tuple[Piece, ...]] = []
        self._note = note

    def show(self, facts: Sequence[Fact], *, keep_place: bool = False) -> None:
        """Shows facts from the first, or from where the window is."""
        self._facts = facts
        before = self._rows
        self._rows = self._wrapped()
        if self._rows != before:
            self.lines_changed()
        if not keep_place:
            self.scroll_to(y=0, animate=False)

    def on_resize(self) -> None:
        """Wraps anew."""
        self._rows = self._wrapped()
        super().on_resize()

    def _wrapped(self) -> list[tuple[Piece, ...]]:
        room = max(12, (self.size.width or 80) - NAME_WIDTH - 3)
        rows: list[tuple[Piece, ...]] = []
        for index, fact in enumerate(self._facts):
            if fact.name and not fact.value and fact.tone is Tone.PLAIN:
                if index:
                    rows.append(())
                rows.append(((f" {fact.name}", Tone.TITLE),))
                continue
            lines = wrap(fact.value, room, drop_whitespace=False, replace_whitespace=False) or [""]
            if len(fact.name) > NAME_WIDTH:
                rows.append(((f" {fact.name}", Tone.MUTED),))
                name = ""
            else:
                name = fact.name
            for number, line in enumerate(lines):
                rows.append(((f" {name if not number else '':<{NAME_WIDTH}} ", Tone.MUTED), (line, fact.tone)))
        return rows

    def line_count(self) -> int:
        """One line a wrapped row."""
        return len(self._rows) or 1

    def line(self, index: int, width: int) -> Sequence[Piece]:
        """A wrapped row."""
        return self._rows[index] if self._rows else [(f" {self._note}", Tone.MUTED)]
