"""A scrolled list of lines drawn one by one, so that ten thousand cost no more than a screenful.

Subclasses say what a line holds; this class owns cursor, scrolling and what a tone looks like.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBar, ScrollBarRender
from textual.strip import Strip
from textual.widget import Widget

from tui.keys import Scope, bindings
from tui.state.code import CODE_TONES
from tui.state.words import Piece, Tone

_TONES = (*Tone, *CODE_TONES)


def fitted(pieces: Sequence[Piece], width: int, more: str = "…") -> list[Piece]:
    """Cuts pieces to a width in cells, with a sign where something was cut."""
    used = 0
    kept: list[Piece] = []
    for text, tone in pieces:
        cells = cell_len(text)
        if used + cells > width:
            room = width - used - cell_len(more)
            if room > 0:
                kept.append((set_cell_size(text, room), tone))
            if width > used:
                kept.append((more[: width - used], tone))
            return kept
        kept.append((text, tone))
        used += cells
    return kept


def tone_style(widget: Widget, name: str) -> Style:
    """What a tone looks like on a widget, without a background."""
    full = widget.get_component_rich_style(f"line--{name}")
    return Style(color=full.color, bold=full.bold, italic=full.italic, underline=full.underline)


def width_of(pieces: Sequence[Piece]) -> int:
    """The cells that pieces take."""
    return sum(cell_len(text) for text, _ in pieces)


def changed_cells(old: Sequence[Piece], new: Sequence[Piece]) -> tuple[int, int] | None:
    """The half-open range of cells in which two lines differ; None if they are the same."""
    left, right = _cells(old), _cells(new)
    if len(left) != len(right):
        return 0, max(len(left), len(right))
    different = [index for index, (one, other) in enumerate(zip(left, right, strict=True)) if one != other]
    return (different[0], different[-1] + 1) if different else None


def _cells(pieces: Sequence[Piece]) -> list[tuple[str, str]]:
    """One entry a cell; a wide character takes two."""
    return [(character, tone) for text, tone in pieces for character in text for _ in range(cell_len(character))]


class AsciiBar(ScrollBarRender):
    """A scrollbar of whole cells."""

    VERTICAL_BARS: ClassVar[list[str]] = [" "] * 8


class LineView(ScrollView, can_focus=True):
    """Lines with an optional cursor.

    Subclasses give `line_count`, `line` and, where a whole line has a background, `line_background`.
    """

    BINDINGS: ClassVar[list[BindingType]] = list(bindings(Scope.MOVE))
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"line--{tone}" for tone in _TONES),
        "line--cursor",
        "line--cursor-blurred",
    }
    HAS_CURSOR: ClassVar[bool] = False

    class CursorMoved(Message):
        """The person moved the cursor."""

        def __init__(self, view: LineView) -> None:
            super().__init__()
            self.view = view

        @property
        def control(self) -> Widget:
            """The view whose cursor moved."""
            return self.view

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._styles: dict[tuple[str, str], Style] = {}

    # What subclasses say

    def line_count(self) -> int:
        """How many lines there are."""
        raise NotImplementedError

    def line(self, index: int, width: int) -> Sequence[Piece]:
        """What a line shows, in at most `width` cells; what is longer is cut."""
        raise NotImplementedError

    def line_background(self, index: int) -> str:
        """The component class whose background a line has, "" for none."""
        return ""

    def cursor_line(self) -> int:
        """The line under the cursor."""
        return 0

    def move_cursor(self, index: int) -> None:
        """Puts the cursor on a line."""
        raise NotImplementedError

    # Drawing

    @property
    def room(self) -> int:
        """The cells of a line; a column at the right is kept for the scrollbar."""
        return self.scrollable_content_region.width

    def render_line(self, y: int) -> Strip:
        """Draws one line of the window."""
        width = self.size.width
        index = y + self.scroll_offset.y
        if not 0 <= index < self.line_count():
            return Strip.blank(width, self.rich_style)
        background = self.line_background(index)
        if self.HAS_CURSOR and index == self.cursor_line():
            background = "line--cursor" if self.has_focus else "line--cursor-blurred"
        pieces = fitted(self.line(index, self.room), self.room)
        segments = [Segment(text, self.style_of(tone, background)) for text, tone in pieces]
        missing = width - width_of(pieces)
        if missing > 0:
            # Blanks in the style before them cost no change of style on the line to the terminal.
            before = segments[-1].style if segments else None
            plain = before is None or before.underline or before.reverse
            segments.append(Segment(" " * missing, self.style_of(Tone.PLAIN, background) if plain else before))
        return Strip(Segment.simplify(segments)).adjust_cell_length(width)

    def style_of(self, tone: str, background: str = "") -> Style:
        """The style of a tone on a background, both by the names of component classes."""
        key = (tone, background)
        style = self._styles.get(key)
        if style is None:
            full = self.get_component_rich_style(f"line--{tone}" if tone in _TONES else tone)
            ground = self.get_component_rich_style(background) if background else self.rich_style
            dim = self.app.native_ansi_color and tone in (Tone.MUTED, "comment")
            style = Style(
                color=full.color,
                bgcolor=ground.bgcolor,
                bold=full.bold or bool(background and ground.bold),
                italic=full.italic,
                underline=full.underline or bool(background and ground.underline),
                reverse=bool(background and ground.reverse),
                dim=dim,
            )
            self._styles[key] = style
        return style

    def notify_style_update(self) -> None:
        """Forgets styles when the theme changes."""
        super().notify_style_update()
        self._styles.clear()

    # Size, without a layout of the whole screen

    def lines_changed(self, first: int | None = 0) -> None:
        """Tells that the count may differ and that lines from `first` on look different."""
        size = Size(self.size.width, self.line_count())
        if size != self.virtual_size:
            needed_bar = self.show_vertical_scrollbar
            self._resize_bar(self.virtual_size.height, size.height)
            self.set_reactive(Widget.virtual_size, size)
            self._refresh_scrollbars()
            if needed_bar != self.show_vertical_scrollbar:
                first = 0
            if self.scroll_offset.y > self.max_scroll_y:
                self.scroll_to(y=self.max_scroll_y, animate=False)
        if first is not None:
            self.refresh_from(first)

    def _resize_bar(self, before: int, after: int) -> None:
        """Tells the scrollbar; it repaints whole, so only where it would look different."""
        bar, height, top = self.vertical_scrollbar, self.size.height, self.scroll_offset.y
        looks = [(height * height * 8 // max(1, count), top * height * 8 // max(1, count)) for count in (before, after)]
        if looks[0] != looks[1]:
            bar.window_virtual_size = after
        else:
            bar.set_reactive(ScrollBar.window_virtual_size, after)

    def refresh_from(self, first: int) -> None:
        """Repaints the lines from an index on, as far as they are in the window."""
        top = max(0, first - self.scroll_offset.y)
        if top < self.size.height:
            self.refresh(Region(0, top, self.size.width, self.size.height - top))

    def refresh_index(self, index: int) -> None:
        """Repaints one line, if it is in the window."""
        y = index - self.scroll_offset.y
        if 0 <= y < self.size.height:
            self.refresh(Region(0, y, self.size.width, 1))

    def on_resize(self) -> None:
        """Lines are as wide as the window."""
        self.lines_changed()
        if self.HAS_CURSOR:
            self.show_line(self.cursor_line())

    def show_line(self, index: int) -> None:
        """Scrolls as little as needed to have a line in the window."""
        height, top = self.size.height, self.scroll_offset.y
        if height <= 0:
            return
        if index < top:
            self.scroll_to(y=index, animate=False)
        elif index >= top + height:
            self.scroll_to(y=index - height + 1, animate=False)

    # Moving

    def _step(self, distance: int) -> None:
        if self.HAS_CURSOR:
            self._go(self.cursor_line() + distance)
        else:
            self.scroll_to(y=self.scroll_offset.y + distance, animate=False)

    def _go(self, index: int) -> None:
        before = self.cursor_line()
        self.move_cursor(max(0, min(index, self.line_count() - 1)))
        after = self.cursor_line()
        self.refresh_index(before)
        self.refresh_index(after)
        self.show_line(after)
        if after != before:
            self.post_message(self.CursorMoved(self))

    def action_cursor_down(self) -> None:
        """One line down."""
        self._step(1)

    def action_cursor_up(self) -> None:
        """One line up."""
        self._step(-1)

    def action_half_down(self) -> None:
        """Half a page down."""
        self._step(max(1, self.size.height // 2))

    def action_half_up(self) -> None:
        """Half a page up."""
        self._step(-max(1, self.size.height // 2))

    def action_first(self) -> None:
        """To the first line."""
        if self.HAS_CURSOR:
            self._go(0)
        else:
            self.scroll_to(y=0, animate=False)

    def action_last(self) -> None:
        """To the last line."""
        if self.HAS_CURSOR:
            self._go(self.line_count() - 1)
        else:
            self.scroll_to(y=self.max_scroll_y, animate=False)

    def on_focus(self) -> None:
        """The cursor looks different with the focus."""
        if self.HAS_CURSOR:
            self.refresh_index(self.cursor_line())

    def on_blur(self) -> None:
        """The cursor looks different without the focus."""
        if self.HAS_CURSOR:
            self.refresh_index(self.cursor_line())

    def on_click(self, event: events.Click) -> None:
        """A click puts the cursor there."""
        if self.HAS_CURSOR:
            index = event.y + self.scroll_offset.y
            if 0 <= index < self.line_count():
                self._go(index)
