"""How the run screen is laid out: its panes, their titles, and which of them are shown at what size."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical

from engine.records import MeasurementKind
from tui.context import Context
from tui.reading import Detail
from tui.screens.steering import SteeringScreen
from tui.state.run_view import RunView, Segment
from tui.state.words import Piece, Tone, plural
from tui.widgets.chart import Chart
from tui.widgets.diff_view import DiffView
from tui.widgets.inspector import Inspector
from tui.widgets.lines import LineView
from tui.widgets.log_view import LogView
from tui.widgets.one_line import OneLine
from tui.widgets.pane import Pane
from tui.widgets.tree_view import TreeView

WIDE = (150, 36)
MEDIUM = (100, 24)
"""From these widths and heights on all panes, or three of them, are shown at once."""


class RunPanes(SteeringScreen):
    """Tree and chart on the left; diff, facts and log on the right; one at a time where there is no room."""

    def __init__(self, context: Context, view: RunView) -> None:
        super().__init__(context)
        self.view = view
        self.detail: Detail | None = None
        self.candidate_log = False
        self._zoomed = False
        self._bottom = "inspector"

    def compose_body(self) -> ComposeResult:
        """Tree and chart on the left; diff, facts and log on the right."""
        glyphs = self.context.glyphs
        yield OneLine(more=glyphs.more, id="strip")
        with Horizontal(id="panes"):
            with Vertical(id="left"):
                yield Pane("Tree", TreeView(self.view.tree, glyphs, id="tree"), glyphs.more, id="tree-pane")
                yield Pane("Best so far", Chart(glyphs, id="chart"), glyphs.more, id="chart-pane")
            with Vertical(id="right"):
                yield Pane("Diff", DiffView(glyphs, id="diff"), glyphs.more, id="diff-pane")
                with Horizontal(id="bottom"):
                    yield Pane(
                        "Inspector", Inspector("nothing to show yet", id="inspector"), glyphs.more, id="inspector-pane"
                    )
                    yield Pane("Log", LogView(id="log"), glyphs.more, id="log-pane")

    # Parts

    @property
    def tree_view(self) -> TreeView:
        """The tree."""
        return self.query_one("#tree", TreeView)

    @property
    def diff_view(self) -> DiffView:
        """The diff."""
        return self.query_one("#diff", DiffView)

    @property
    def inspector(self) -> Inspector:
        """The facts."""
        return self.query_one("#inspector", Inspector)

    @property
    def log_view(self) -> LogView:
        """The log."""
        return self.query_one("#log", LogView)

    def pane(self, name: str) -> Pane:
        """A pane by the name of its view."""
        return self.query_one(f"#{name}-pane", Pane)

    @property
    def views(self) -> list[LineView]:
        """The views that take the focus, in the order of Tab."""
        return [self.tree_view, self.diff_view, self.inspector, self.log_view]

    # Titles

    def segments(self) -> Sequence[Segment]:
        """How the run does."""
        if not self.view.run_id:
            return [Segment("no run is open", Tone.MUTED), Segment("1 shows all runs")]
        return self.view.status(self.context.now(), self.context.glyphs)

    def refresh_titles(self) -> None:
        """Says above each pane what it shows."""
        tree = self.view.tree
        about: list[Piece] = []
        if tree.marked:
            about.append((f"{len(tree.marked)} marked  ", Tone.ACCENT))
        if tree.filter is not None:
            about.append((f"/{tree.filter.text}  {tree.match_count} of {len(tree)}", Tone.WARN))
        else:
            modelled = "times modelled, " if self.view.times == MeasurementKind.MODELLED else ""
            about.append((modelled + plural(len(tree), "candidate"), Tone.MUTED))
        self.pane("tree").about(about)
        diff_about: list[Piece] = []
        if self.detail is not None:
            diff_about.append((f"{self.detail.title}  ", Tone.MUTED))
            if not self.detail.diff.empty:
                glyphs = self.context.glyphs
                diff_about.append((f"{glyphs.add}{self.detail.diff.added} ", Tone.GOOD))
                diff_about.append((f"{glyphs.remove}{self.detail.diff.removed}", Tone.BAD))
        self.pane("diff").about(diff_about)
        current = tree.cursor
        self.pane("inspector").about([(f"{current}" if current else "", Tone.MUTED)])
        scope = f"candidate {current}" if self.candidate_log else "run"
        self.pane("log").about([(scope, Tone.MUTED)])
        self.pane("chart").about([(" ".join(filter(None, (self.view.times, "speedup against eager"))), Tone.MUTED)])
        self._show_strip()

    def _show_strip(self) -> None:
        pieces: list[Piece] = []
        about: Sequence[Piece] = ()
        for view in self.views:
            pane = self.pane(view.id or "")
            current = view.has_focus
            pieces.append((f" {pane.title_text} ", Tone.TITLE if current else Tone.MUTED))
            if current:
                about = pane.about_pieces
        self.query_one("#strip", OneLine).show(pieces, [*about, (" ", Tone.PLAIN)])

    # Panes

    def on_resize(self, event: events.Resize) -> None:
        """Arranges the panes for the size."""
        self._arrange(event.size.width, event.size.height)

    def on_descendant_focus(self) -> None:
        """Shows the pane that has the focus."""
        if self.focused in (self.inspector, self.log_view):
            self._bottom = self.focused.id or ""
        self._arrange(self.size.width, self.size.height)
        self._show_strip()

    def _arrange(self, width: int, height: int) -> None:
        """One pane where there is little room, three at medium size, all on a large terminal."""
        focused = self.focused.id if self.focused in self.views and self.focused is not None else "tree"
        if self._zoomed or width < MEDIUM[0] or height < MEDIUM[1]:
            shown = {focused or "tree"}
        elif width < WIDE[0] or height < WIDE[1]:
            shown = {"tree", "diff", self._bottom}
        else:
            shown = {"tree", "chart", "diff", "inspector", "log"}
        for name in ("tree", "chart", "diff", "inspector", "log"):
            self.pane(name).display = name in shown
        self.query_one("#left").display = bool(shown & {"tree", "chart"})
        self.query_one("#bottom").display = bool(shown & {"inspector", "log"})
        self.query_one("#right").display = bool(shown & {"diff", "inspector", "log"})
        self.set_class(len(shown) == 1, "-single")

    def action_next_pane(self) -> None:
        """Gives the next pane the focus."""
        self.cycle(self.views)

    def action_previous_pane(self) -> None:
        """Gives the pane before the focus."""
        self.cycle(self.views, forward=False)

    def action_zoom(self) -> None:
        """Shows the focused pane alone, or all again."""
        self._zoomed = not self._zoomed
        self._arrange(self.size.width, self.size.height)
