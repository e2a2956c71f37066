"""A log, wrapped to the width of its pane; stays at the end unless the person scrolled away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.message import Message

from tui.keys import Scope, bindings
from tui.state.log import LogLine, wrapped
from tui.state.words import Piece, Tone
from tui.widgets.lines import LineView


class LogView(LineView):
    """Draws log lines."""

    BINDINGS: ClassVar[list[BindingType]] = list(bindings(Scope.LOG))
    SCOPE = Scope.LOG

    class Switched(Message):
        """The person wants the other log."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._lines: Sequence[LogLine] = ()
        self._current: int | None = None
        self._rows: list[tuple[Piece, ...]] = []
        self._width = 0
        self._note = ""

    def show(self, lines: Sequence[LogLine], current: int | None, note: str, *, to_end: bool | None = None) -> None:
        """Shows lines; those of the `current` candidate stand out.

        Args:
            lines: oldest first.
            current: the number of the candidate under the cursor.
            note: what is said when there are no lines.
            to_end: whether to scroll to the end; None does so if the window was there before.
        """
        at_end = self.scroll_offset.y >= self.max_scroll_y
        before = self._rows
        self._lines, self._current, self._note = lines, current, note
        self._wrap()
        if self._rows != before:
            self.lines_changed()
        if to_end or (to_end is None and at_end):
            self.scroll_to(y=self.max_scroll_y, animate=False)
        elif to_end is False:
            self.scroll_to(y=0, animate=False)

    def _wrap(self) -> None:
        self._width = self.room
        self._rows = [row for line in self._lines for row in wrapped(line, self._width or 80, self._current)]

    def on_resize(self) -> None:
        """Wraps anew."""
        at_end = self.scroll_offset.y >= self.max_scroll_y
        if self.room != self._width:
            self._wrap()
            self.lines_changed()
        if at_end:
            self.scroll_to(y=self.max_scroll_y, animate=False)

    def line_count(self) -> int:
        """One line a wrapped row."""
        return len(self._rows) or 1

    def line(self, index: int, width: int) -> Sequence[Piece]:
        """A wrapped row."""
        return self._rows[index] if self._rows else [(f" {self._note}", Tone.MUTED)]

    def action_switch_log(self) -> None:
        """Asks for the other log."""
        self.post_message(self.Switched())
