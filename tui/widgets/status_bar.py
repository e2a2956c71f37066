"""The line on top: where one is, and how the run does."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from tui.state.run_view import Segment, fit
from tui.state.words import Piece, Tone
from tui.widgets.one_line import OneLine

GAP = "  "


class StatusBar(OneLine):
    """Shows segments, the least important of which go first when there is no room."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._segments: Sequence[Segment] = ()

    def show_segments(self, segments: Sequence[Segment]) -> None:
        """Shows other segments."""
        self._segments = segments
        self._fit()

    def on_resize(self) -> None:
        """Fits anew."""
        self._fit()

    def _fit(self) -> None:
        kept = fit(list(self._segments), self.size.width - 2, cell_len, gap=len(GAP))
        pieces: list[Piece] = [(" ", Tone.PLAIN)]
        for index, segment in enumerate(kept):
            if index:
                pieces.append((GAP, Tone.PLAIN))
            pieces.append((segment.text, segment.tone))
        self.show(pieces)
