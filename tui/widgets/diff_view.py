"""A unified diff with syntax colours: whole rows tinted, changed words marked, equal lines folded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

from textual.binding import BindingType

from tui.keys import Scope, bindings
from tui.state.diff import Diff, DiffRow, RowKind, Span
from tui.state.words import Glyphs, Piece, Tone, plural
from tui.widgets.lines import LineView

_GROUNDS = {RowKind.ADDED: "line--added", RowKind.REMOVED: "line--removed", RowKind.SKIPPED: "line--skipped"}


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

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._glyphs = glyphs
        self._diff = Diff()
        self._left = 0
        self._note = "nothing to show yet"

    def show(self, shown: Diff, note: str = "", *, keep_place: bool = False) -> None:
        """Shows a diff, or a note where it has no rows; `keep_place` leaves the window where it is."""
        self._diff = shown
        self._note = note
        self.lines_changed()
        if not keep_place:
            self._left = 0
            first = shown.hunks[0] if shown.hunks else 0
            self.scroll_to(y=max(0, first - 3) if first >= self.size.height else 0, animate=False)

    def line_count(self) -> int:
        """One line a row."""
        return len(self._diff.rows) or 1

    def line(self, index: int, width: int) -> Sequence[Piece]:
        """Line numbers, a sign, and the code from the left edge on."""
        if not self._diff.rows:
            return [(f" {self._note}", Tone.MUTED)]
        row = self._diff.rows[index]
        if row.kind is RowKind.SKIPPED:
            return [(f"      {self._glyphs.more} {plural(row.skipped, 'equal line')}", Tone.MUTED)]
        number = row.new if row.new is not None else row.old
        sign, sign_tone = " ", str(Tone.MUTED)
        if row.kind is RowKind.ADDED:
            sign, sign_tone = self._glyphs.add, "line--sign-added"
        elif row.kind is RowKind.REMOVED:
            sign, sign_tone = self._glyphs.remove, "line--sign-removed"
        return [(f"{number:>4} ", Tone.MUTED), (f"{sign} ", sign_tone), *self._code(row)]

    def line_background(self, index: int) -> str:
        """Added and removed rows are tinted over their whole width."""
        return _GROUNDS.get(self._diff.rows[index].kind, "") if self._diff.rows else ""

    def _code(self, row: DiffRow) -> list[Piece]:
        code = list(row.code)
        if row.emphasis:
            code = _marked(code, row.emphasis, f"line--{row.kind}-word")
        return _from(code, self._left) if self._left else code

    def action_hunk(self, direction: int) -> None:
        """To the next change below or above the top of the window."""
        top = self.scroll_offset.y + 3
        hunks = self._diff.hunks
        if direction > 0:
            target = next((hunk for hunk in hunks if hunk > top), None)
        else:
            target = next((hunk for hunk in reversed(hunks) if hunk < top), None)
        if target is not None:
            self.scroll_to(y=max(0, target - 3), animate=False)

    def action_sideways(self, cells: int) -> None:
        """Looks further right or left in long lines."""
        left = max(0, min(self._left + cells, self._diff.width - 20))
        if left != self._left:
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


def _from(code: list[Piece], left: int) -> list[Piece]:
    """Drops the first `left` characters."""
    kept: list[Piece] = []
    for text, tone in code:
        if left >= len(text):
            left -= len(text)
        else:
            kept.append((text[left:], tone))
            left = 0
    return kept
