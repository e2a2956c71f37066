"""Single lines of toned text: the base of status line, pane titles and the line of keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.geometry import Region
from textual.widget import Widget

from tui.state.words import Piece, Tone
from tui.widgets.lines import changed_cells, fitted, width_of


class OneLine(Widget):
    """Shows pieces on the left and on the right of one line; repaints only when they differ."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {*(f"line--{tone}" for tone in Tone), "line--key"}
    DEFAULT_CSS = """
    OneLine { height: 1; width: 1fr; }
    """

    def __init__(self, *, more: str = "…", id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self._more = more
        self._left: tuple[Piece, ...] = ()
        self._right: tuple[Piece, ...] = ()

    @property
    def text(self) -> str:
        """What is shown, without tones."""
        return "".join(text for text, _ in (*self._left, *self._right))

    def show(self, left: Sequence[Piece], right: Sequence[Piece] = ()) -> None:
        """Shows other pieces."""
        new = tuple(left), tuple(right)
        if new == (self._left, self._right):
            return
        before = self._pieces()
        self._left, self._right = new
        span = changed_cells(before, self._pieces())
        if span is not None:
            self.refresh(Region(span[0], 0, span[1] - span[0], 1))

    def _pieces(self) -> list[Piece]:
        """The line as wide as the widget."""
        width = self.size.width
        right = fitted(self._right, width, self._more)
        left = fitted(self._left, max(0, width - width_of(right) - (1 if right else 0)), self._more)
        return [*left, (" " * (width - width_of(left) - width_of(right)), Tone.PLAIN), *right]

    def render(self) -> Text:
        """The line as rich text, which parses no markup."""
        line = Text(no_wrap=True, end="")
        for text, tone in self._pieces():
            line.append(text, self.get_component_rich_style(f"line--{tone}"))
        return line
