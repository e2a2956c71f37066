"""The search tree: one line a candidate, with what came of it on the right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.message import Message

from engine.records import CandidateState, Step
from tui.keys import Scope, bindings
from tui.state.nodes import Change, TreeRow
from tui.state.tree import RunTree
from tui.state.words import (
    Glyphs,
    Piece,
    Tone,
    label_words,
    may_be_best,
    one_line,
    outcome,
    speedup_text,
    step_glyph,
    time_text,
)
from tui.widgets.lines import LineView, fitted, width_of

MAX_LEVELS = 10
"""Levels of guides that are drawn; deeper ones are counted."""

SHOWN_LABELS = 2

WORDS_FROM = 60
"""From this width on a row shows the time as well, and the longer words for what went wrong."""


class TreeView(LineView):
    """Draws a `RunTree` and moves its cursor; does not own it."""

    BINDINGS: ClassVar[list[BindingType]] = list(bindings(Scope.TREE))
    SCOPE = Scope.TREE
    HAS_CURSOR = True

    class Opened(Message):
        """The person wants to look closer at the candidate under the cursor."""

    def __init__(self, tree: RunTree, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.run_tree = tree
        self.best: int | None = None
        self._glyphs = glyphs

    def show(self, tree: RunTree) -> None:
        """Shows another tree from its top."""
        self.run_tree = tree
        self.best = None
        self.scroll_to(y=0, animate=False)
        self.lines_changed()

    def apply(self, change: Change, best: int | None) -> None:
        """Repaints what an update changed, and keeps what is in the window where it is."""
        top = self.scroll_offset.y
        above = 0
        if not self.run_tree.following:
            above = sum(1 for row in change.inserted if row < top)
        best_moved = best != self.best
        self.best = best
        if change.repaint_from is not None:
            self.lines_changed(0 if above else change.repaint_from)
        if above:
            self.scroll_to(y=top + above, animate=False)
        if self.run_tree.following:
            self.show_line(self.run_tree.cursor_row)
        if best_moved:
            self.refresh_from(0)
            return
        window = range(self.scroll_offset.y, min(self.scroll_offset.y + self.size.height, len(self.run_tree.rows)))
        for row in window:
            if self.run_tree.rows[row] in change.changed:
                self.refresh_index(row)

    def rows_changed(self) -> None:
        """Repaints everything after folding, filtering or a jump."""
        self.lines_changed()
        self.show_line(self.run_tree.cursor_row)

    # Lines

    def line_count(self) -> int:
        """One line a visible candidate."""
        return len(self.run_tree.rows)

    def cursor_line(self) -> int:
        """The row of the candidate under the cursor."""
        return self.run_tree.cursor_row

    def move_cursor(self, index: int) -> None:
        """Puts the cursor on a row; following ends, since the person looks elsewhere."""
        if self.run_tree.following and index != self.run_tree.cursor_row:
            self.run_tree.follow(False)
        self.run_tree.move_to_row(index)

    def line(self, index: int, width: int) -> Sequence[Piece]:
        """Guides, step, number and idea on the left; outcome, time and best below on the right."""
        row = self.run_tree.row(index, MAX_LEVELS)
        right = self._right(row, width)
        left = self._left(row)
        room = width - width_of(right) - 1
        left = fitted(left, room, self._glyphs.more)
        return [*left, (" " * (room + 1 - width_of(left)), Tone.PLAIN), *right]

    def _left(self, row: TreeRow) -> list[Piece]:
        glyphs, candidate = self._glyphs, row.candidate
        dim = not row.matches or candidate.pruned
        mark = glyphs.marked if candidate.number in self.run_tree.marked else " "
        pieces: list[Piece] = [(mark, Tone.ACCENT), (self._guides(row), Tone.MUTED)]
        leaf = glyphs.rule if row.last else " "
        fold = leaf if not row.has_children else glyphs.folded if row.folded else glyphs.unfolded
        pieces.append((f"{fold} ", Tone.MUTED))
        structural = candidate.step is Step.STRUCTURAL
        pieces.append((step_glyph(candidate.step, glyphs), Tone.ACCENT if structural and not dim else Tone.MUTED))
        pieces.append((f" {candidate.number} ", Tone.MUTED if dim else Tone.STRONG))
        if candidate.number == self.best:
            pieces.append((f"{glyphs.best} ", Tone.GOOD))
        if candidate.pinned:
            pieces.append((f"{glyphs.pinned} ", Tone.WARN))
        pieces.append(
            (one_line(candidate.idea), Tone.MUTED if dim or candidate.state is CandidateState.DUPLICATE else Tone.PLAIN)
        )
        return pieces

    def _guides(self, row: TreeRow) -> str:
        glyphs = self._glyphs
        if not row.last:
            return ""
        parts = [f"{'  ' if ended else f'{glyphs.bar} '}" for ended in row.last[:-1]]
        lead = f"{glyphs.more}{row.hidden_levels} " if row.hidden_levels else ""
        return lead + "".join(parts) + (glyphs.last if row.last[-1] else glyphs.branch)

    def _right(self, row: TreeRow, width: int) -> list[Piece]:
        """Three columns: labels or words, the result, and the best that grew from here."""
        glyphs, candidate = self._glyphs, row.candidate
        said = outcome(candidate, glyphs, short=width < WORDS_FROM)
        tone = str(said.tone)
        if not row.matches:
            tone = Tone.MUTED
        below: Piece = (" " * 8, Tone.MUTED)
        own = candidate.speedup if may_be_best(candidate, self.run_tree.allowed) else None
        if row.best_below is not None and (own is None or row.best_below > own):
            below = (f" {glyphs.below}{speedup_text(row.best_below):<6}", Tone.MUTED)
        if candidate.state is CandidateState.EVALUATED and candidate.speedup is not None and not candidate.pruned:
            time = f"{time_text(candidate.time_us):>8} " if width >= WORDS_FROM else ""
            result: list[Piece] = [(f"{time}{said.words:>7} {said.glyph}", tone)]
            if candidate.labels and width >= 70:
                labels = ", ".join(label_words(label) for label in candidate.labels[:SHOWN_LABELS])
                result.insert(0, (f"{labels} ", Tone.WARN))
        else:
            result = [(f"{said.words} {said.glyph}", tone)]
        return [*result, below]

    # Actions

    def action_open(self) -> None:
        """Asks for a closer look."""
        self.post_message(self.Opened())

    def action_fold(self) -> None:
        """Folds, or goes to the parent."""
        self._restructure(self.run_tree.fold_or_parent)

    def action_unfold(self) -> None:
        """Unfolds, or goes to the first child."""
        self._restructure(self.run_tree.unfold_or_child)

    def _restructure(self, change: object) -> None:
        before, count = self.run_tree.cursor, len(self.run_tree.rows)
        assert callable(change)
        change()
        if len(self.run_tree.rows) != count:
            self.lines_changed()
        self.refresh_from(0)
        self.show_line(self.run_tree.cursor_row)
        if self.run_tree.cursor != before:
            self.post_message(self.CursorMoved(self))

    def action_mark(self) -> None:
        """Marks the candidate under the cursor, or takes the mark away, and goes on."""
        if self.run_tree.cursor is not None:
            self.run_tree.marked.symmetric_difference_update({self.run_tree.cursor})
            self.refresh_index(self.run_tree.cursor_row)
            self.action_cursor_down()
