"""A short list of rows with a cursor that stays on its row when others come and go."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar, Generic, TypeVar

from textual.binding import BindingType

from tui.state.words import Piece, Tone
from tui.widgets.lines import LineView, fitted, width_of

K = TypeVar("K", bound=Hashable)


class RowList(LineView, Generic[K]):
    """Rows by key, each with pieces on the left and on the right."""

    BINDINGS: ClassVar[list[BindingType]] = []
    HAS_CURSOR = True

    def __init__(self, note: str, more: str, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._note = note
        self._more = more
        self._keys: list[K] = []
        self._rows: list[tuple[Sequence[Piece], Sequence[Piece]]] = []
        self._cursor = 0

    @property
    def current(self) -> K | None:
        """The key of the row under the cursor."""
        return self._keys[self._cursor] if self._keys else None

    def show(self, keys: Sequence[K], rows: Sequence[tuple[Sequence[Piece], Sequence[Piece]]]) -> None:
        """Shows other rows; a cursor whose row has gone stays where it was."""
        at = self.current
        self._keys, self._rows = list(keys), list(rows)
        self._cursor = self._keys.index(at) if at in self._keys else min(self._cursor, max(0, len(self._keys) - 1))
        self.lines_changed()
        self.show_line(self._cursor)

    def go_to(self, key: K) -> bool:
        """Puts the cursor on a row."""
        if key not in self._keys:
            return False
        self._go(self._keys.index(key))
        return True

    def line_count(self) -> int:
        """One line a row."""
        return len(self._rows) or 1

    def cursor_line(self) -> int:
        """The row under the cursor; none while there are no rows."""
        return self._cursor if self._rows else -1

    def move_cursor(self, index: int) -> None:
        """Puts the cursor on a row."""
        self._cursor = max(0, min(index, len(self._rows) - 1)) if self._rows else 0

    def line(self, index: int, width: int) -> Sequence[Piece]:
        """Left and right pieces of a row."""
        if not self._rows:
            return [(f" {self._note}", Tone.MUTED)]
        left, right = self._rows[index]
        room = width - width_of(right) - 1
        kept = fitted(left, room, self._more)
        return [*kept, (" " * (room + 1 - width_of(kept)), Tone.PLAIN), *right]
