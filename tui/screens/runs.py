"""All runs of the database, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message
from textual.widgets import Static

from engine.store.reader import RunOverview
from tui.context import Context
from tui.keys import Scope, bindings
from tui.poller import Follower
from tui.screens.base import CockpitScreen
from tui.state.run_view import HEARTBEAT_WARNING_S, Segment
from tui.state.words import Tone, age_text, clean, plural, run_words, speedup_text, time_text
from tui.widgets.lines import tone_style
from tui.widgets.run_table import RunTable

COLUMNS = ("run", "name", "task", "state", "judged", "correct", "waiting", "best", "time", "engine", "age")
NARROW = 100
"""Below this width the columns of `WIDE_ONLY` are left out."""

WIDE_ONLY = frozenset({"name", "correct", "time"})
_RIGHT = frozenset({"run", "judged", "correct", "waiting", "best", "time", "age"})


class RunsScreen(CockpitScreen):
    """A table of runs; Enter opens one."""

    SCOPE = Scope.RUNS
    BINDINGS: ClassVar[list[BindingType]] = list(bindings(Scope.RUNS))

    class Updated(Message):
        """A run changed."""

        def __init__(self, runs: list[RunOverview]) -> None:
            super().__init__()
            self.runs = runs

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._runs: list[RunOverview] = []
        self._columns: tuple[str, ...] = ()

    def compose_body(self) -> ComposeResult:
        """The table, or what to do when there is nothing to show."""
        yield RunTable(id="runs", cursor_type="row", zebra_stripes=False)
        yield Static("", id="no-runs", markup=False)

    @property
    def table(self) -> RunTable:
        """The table."""
        return self.query_one("#runs", RunTable)

    def on_mount(self) -> None:
        """Follows all runs."""
        self.table.focus()
        self.table.display = False
        source = self.context.sources.runs(self.context.db)
        self.follow(cast("Follower[object]", Follower(self, source, self.Updated, self.context.poll_seconds)))
        self.set_interval(10.0, self._fill)

    def on_runs_screen_updated(self, message: Updated) -> None:
        """Shows the runs as they are now."""
        self._runs = message.runs
        self._fill()
        self.refresh_status()

    def on_resize(self, event: events.Resize) -> None:
        """Fits the columns."""
        self._fill()

    def _fill(self) -> None:
        table = self.table
        self.query_one("#no-runs", Static).update(
            ""
            if self._runs
            else "No run yet.\n\nStart one with: kernelgrove demo\nor on your own task: kernelgrove run TASK"
        )
        self.query_one("#no-runs").display = not self._runs
        table.display = bool(self._runs)
        wide = self.size.width >= NARROW
        named = any(each.run.name != each.run.task for each in self._runs)
        columns = tuple(name for name in COLUMNS if (wide or name not in WIDE_ONLY) and (named or name != "name"))
        if columns != self._columns:
            self._columns = columns
            table.clear(columns=True)
            for name in columns:
                table.add_column(Text(name, justify="right" if name in _RIGHT else "left"), key=name)
        shown = [str(key.value) for key in table.rows]
        wanted = [str(each.run.id) for each in self._runs]
        rows = {str(each.run.id): self._row(each) for each in self._runs}
        if shown != wanted:
            at = shown[table.cursor_row] if shown and table.cursor_row < len(shown) else None
            table.clear()
            for key in wanted:
                table.add_row(*rows[key], key=key)
            if at in wanted:
                table.move_cursor(row=wanted.index(at), animate=False)
            return
        for key, cells in rows.items():
            for name, cell in zip(columns, cells, strict=True):
                if table.get_cell(key, name) != cell:
                    table.update_cell(key, name, cell)

    def _row(self, overview: RunOverview) -> list[Text]:
        run = overview.run
        words, tone = run_words(run.state)
        waiting = f"{overview.waiting_approval}" if overview.waiting_approval else ""
        engine, engine_tone = self._engine(overview)
        cells = {
            "run": (str(run.id), Tone.STRONG),
            "name": (clean(run.name) if run.name != run.task else "", Tone.PLAIN),
            "task": (clean(run.task), Tone.PLAIN),
            "state": (words, tone),
            "judged": (f"{overview.judged}/{run.budget}", Tone.PLAIN),
            "correct": (str(overview.correct), Tone.PLAIN),
            "waiting": (waiting, Tone.WARN),
            "best": (speedup_text(overview.best_speedup), Tone.GOOD),
            "time": (time_text(overview.best_time_us), Tone.PLAIN),
            "engine": (engine, engine_tone),
            "age": (age_text(self.context.now() - run.created_at), Tone.MUTED),
        }
        return [
            Text(
                cells[name][0],
                style=tone_style(self.table, cells[name][1]),
                justify="right" if name in _RIGHT else "left",
                no_wrap=True,
            )
            for name in self._columns
        ]

    def _engine(self, overview: RunOverview) -> tuple[str, Tone]:
        engine = overview.engine
        if engine is not None and engine.alive:
            silent = self.context.now() - engine.heartbeat_at
            if silent > HEARTBEAT_WARNING_S:
                return f"silent {age_text(silent)}", Tone.BAD
            return "alive", Tone.GOOD
        return ("", Tone.MUTED) if overview.run.state.ended else ("none", Tone.WARN)

    def segments(self) -> Sequence[Segment]:
        """How many runs there are, and where."""
        working = sum(1 for each in self._runs if each.engine is not None and each.engine.alive)
        return [
            Segment("Kernelgrove", Tone.STRONG),
            Segment(plural(len(self._runs), "run")),
            Segment(f"{working} at work", Tone.GOOD if working else Tone.MUTED, order=1),
            Segment(clean(str(self.context.db)), Tone.MUTED, order=2),
        ]

    def action_open(self) -> None:
        """Opens the run under the cursor."""
        if self._runs:
            self.post_message(self.OpenRun(self._runs[self.table.cursor_row].run.id))

    def on_data_table_row_selected(self) -> None:
        """Enter and a click open the run."""
        self.action_open()
