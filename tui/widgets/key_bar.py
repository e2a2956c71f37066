"""The line at the bottom: the keys that work here, or for a while what was just said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual.timer import Timer

from tui.keys import Key, Scope, key_line
from tui.state.words import Piece, Tone
from tui.widgets.lines import width_of
from tui.widgets.one_line import OneLine

SAID_SECONDS = 8.0


class KeyBar(OneLine):
    """Shows keys until something is said, and again after a key or a while."""

    def __init__(self, *, more: str, id: str | None = None) -> None:  # noqa: A002
        super().__init__(more=more, id=id)
        self._keys: Sequence[Key] = ()
        self._said: Timer | None = None

    def show_keys(self, scopes: Iterable[Scope]) -> None:
        """Shows the keys of some scopes, as many as fit, help and back always."""
        self._keys = key_line(scopes)
        if self._said is None:
            self._show_keys()

    def say(self, text: str, tone: Tone = Tone.ACCENT) -> None:
        """Shows a sentence in place of the keys."""
        if self._said is not None:
            self._said.stop()
        self._said = self.set_timer(SAID_SECONDS, self.hush)
        self.show([(f" {text}", tone)])

    def hush(self) -> None:
        """Shows the keys again."""
        if self._said is not None:
            self._said.stop()
            self._said = None
            self._show_keys()

    def on_resize(self) -> None:
        """Fits anew."""
        if self._said is None:
            self._show_keys()

    def _show_keys(self) -> None:
        always = [key for key in self._keys if key.rank > 90]
        right = _pieces(always)
        room = self.size.width - width_of(right) - 3
        left: list[Piece] = []
        for key in (key for key in self._keys if key.rank <= 90):
            pieces = _pieces([key])
            if width_of(left) + width_of(pieces) > room:
                break
            left += pieces
        self.show(left, [*right, (" ", Tone.PLAIN)])


def _pieces(keys: Sequence[Key]) -> list[Piece]:
    pieces: list[Piece] = []
    for key in keys:
        pieces += [(f" {key.shown}", "key"), (f" {key.word} ", Tone.MUTED)]
    return pieces
