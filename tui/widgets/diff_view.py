"""A unified diff with syntax colours: whole rows tinted, changed words marked, equal lines folded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

from textual.binding import BindingType
from textual.message import Message

from tui.keys import Scope, bindings
from tui.state.diff import Diff, DiffRow, RowKind, Span
from tui.state.words import Glyphs, Piece, Tone, plural
from tui.widgets.lines import LineView

_GROUNDS = {RowKind.ADDED: "line--added", RowKind.REMOVED: "line--removed", RowKind.SKIPPED: "line--skipped"}

GUTTER = 7
"""The cells of line number and sign."""

LEAD = 3
"""How many lines are shown above a change that was jumped to."""


class DiffView(LineView):
    """Draws a `Diff`; the reading position is the top of the window."""

    BINDINGS: ClassVar[list[BindingType]] = list(bindings(Scope.DIFF))
    SCOPE = Scope.DIFF
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "line--added",
        "line--removed",
        "line--skipped",
        "line--added-word",
        "line--removed-word",
        "line--sign-added",
        "line--sign-removed",
    }

    class ContextWanted(Message):
        """The person wants more (1) or fewer (-1) equal lines around changes."""

        def __init__(self, direction: int) -> None:
            super().__init__()
            self.direction = direction

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._glyphs = glyphs
        self._diff = Diff()
        self._note = "nothing to show yet"
        self._wrapping = True
        self._left = 0
        self._room = 80
        self._lines: list[tuple[int, int]] = []
        self._first_line: list[int] = []

    def show(self, shown: Diff, note: str = "", *, keep_place: bool = False) -> None:
        """Shows a diff, or a note where it has no rows; `keep_place` leaves the window where it is."""
        self._diff = shown
        self._note = note
        if not keep_place:
            self._left = 0
        self._lay_out()
        self.lines_changed()
        if not keep_place:
            first = self._first_line[shown.hunks[0]] if shown.hunks else 0
            self.scroll_to(y=max(0, first - LEAD) if first >= self.size.height else 0, animate=False)

    def on_resize(self) -> None:
        """Lays out anew."""
        self._lay_out()

    def _lay_out(self) -> None:
        """Works out which row and which part of it each line shows."""
        room = self._room = max(10, (self.room or 80) - GUTTER)
        self._lines, self._first_line = [], []
        for index, row in enumerate(self._diff.rows):
            self._first_line.append(len(self._lines))
            length = sum(len(text) for text, _ in row.code) if self._wrapping else 0
            self._lines.extend((index, start) for start in range(0, max(1, length), room))

    def line_count(self) -> int:
        """One line a row, more where a row is wrapped."""
        return len(self._lines) or 1

    def line(self, index: int, width: int) -> Sequence[Piece]:
        """Line number, sign and code."""
        if not self._lines:
            return [(f" {self._note}", Tone.MUTED)]
        at, start = self._lines[index]
        row = self._diff.rows[at]
        if row.kind is RowKind.SKIPPED:
            return [(f"      {self._glyphs.more} {plural(row.skipped, 'equal line')}", Tone.MUTED)]
        code = self._code(row)
        if self._wrapping:
            code = _part(code, start, start + self._room)
        elif self._left:
            code = _part(code, self._left, self._diff.width)
        if start:
            return [(" " * GUTTER, Tone.MUTED), *code]
        number = row.new if row.new is not None else row.old
        sign, sign_tone = " ", str(Tone.MUTED)
        if row.kind is RowKind.ADDED:
            sign, sign_tone = self._glyphs.add, "line--sign-added"
        elif row.kind is RowKind.REMOVED:
            sign, sign_tone = self._glyphs.remove, "line--sign-removed"
        return [(f"{number:>4} ", Tone.MUTED), (f"{sign} ", sign_tone), *code]

    def line_background(self, index: int) -> str:
        """Added and removed rows are tinted over their whole width."""
        return _GROUNDS.get(self._diff.rows[self._lines[index][0]].kind, "") if self._lines else ""

    def _code(self, row: DiffRow) -> list[Piece]:
        code = list(row.code)
        return _marked(code, row.emphasis, f"line--{row.kind}-word") if row.emphasis else code

    def action_hunk(self, direction: int) -> None:
        """To the next change below or above the top of the window."""
        top = self.scroll_offset.y + LEAD
        hunks = [self._first_line[hunk] for hunk in self._diff.hunks]
        if direction > 0:
            target = next((hunk for hunk in hunks if hunk > top), None)
        else:
            target = next((hunk for hunk in reversed(hunks) if hunk < top), None)
        if target is not None:
            self.scroll_to(y=max(0, target - LEAD), animate=False)

    def action_context(self, direction: int) -> None:
        """Asks for more or fewer equal lines."""
        self.post_message(self.ContextWanted(direction))

    def action_wrap(self) -> None:
        """Wraps long lines, or cuts them at the edge."""
        self._wrapping = not self._wrapping
        self._left = 0
        self._lay_out()
        self.lines_changed()

    def action_sideways(self, cells: int) -> None:
        """Looks further right or left in lines that are not wrapped."""
        left = max(0, min(self._left + cells, self._diff.width - 20))
        if left != self._left and not self._wrapping:
            self._left = left
            self.refresh()


def _marked(code: list[Piece], spans: Sequence[Span], tone: str) -> list[Piece]:
    """Gives the characters in some spans another tone."""
    marked: list[Piece] = []
    at = 0
    for text, plain in code:
        cuts = sorted({0, len(text), *(edge - at for span in spans for edge in span if 0 < edge - at < len(text))})
        for start, end in pairwise(cuts):
            inside = any(first <= at + start < last for first, last in spans)
            marked.append((text[start:end], tone if inside else plain))
        at += len(text)
    return marked


def _part(code: list[Piece], start: int, end: int) -> list[Piece]:
    """The characters from `start` up to `end`."""
    kept: list[Piece] = []
    at = 0
    for text, tone in code:
        part = text[max(0, start - at) : max(0, end - at)]
        if part:
            kept.append((part, tone))
        at += len(text)
    return kept
