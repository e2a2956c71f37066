"""A pane: a title line over a view."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget

from tui.state.words import Piece, Tone
from tui.widgets.one_line import OneLine


class Pane(Vertical):
    """Shows its name on the left and what its view is about on the right; the focused one stands out."""

    def __init__(self, name: str, view: Widget, more: str, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes="pane")
        self.title_text = name
        self.view = view
        self.about_pieces: Sequence[Piece] = ()
        self._line = OneLine(more=more, classes="pane-title")

    def compose(self) -> ComposeResult:
        """Title and view."""
        yield self._line
        yield self.view

    def on_mount(self) -> None:
        """Shows the title."""
        self._show()

    def about(self, pieces: Sequence[Piece]) -> None:
        """Says what the view is about."""
        self.about_pieces = pieces
        self._show()

    def on_descendant_focus(self) -> None:
        """Stands out."""
        self._show()

    def on_descendant_blur(self) -> None:
        """Steps back."""
        self._show()

    def _show(self) -> None:
        tone = Tone.TITLE if self.view.has_focus else Tone.MUTED
        self._line.show([(f" {self.title_text}", tone)], [*self.about_pieces, (" ", Tone.PLAIN)])
