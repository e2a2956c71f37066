"""One run: its tree, and of the candidate under the cursor the diff, the facts and the log."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar, cast

from textual.binding import BindingType
from textual.message import Message
from textual.timer import Timer

from engine.records import CandidateState
from tui.context import Context
from tui.keys import Scope, bindings
from tui.poller import Follower
from tui.reading import Base, Detail, Wanted, next_context, read_detail
from tui.screens.prompts import TextPrompt
from tui.screens.run_panes import RunPanes
from tui.state.details import facts
from tui.state.diff import Diff
from tui.state.filters import FilterError, parse_filter
from tui.state.log import evaluation_lines
from tui.state.run_view import RunUpdate, RunView
from tui.state.words import Tone
from tui.widgets.chart import Chart
from tui.widgets.diff_view import DiffView
from tui.widgets.lines import LineView

READ_AFTER_S = 0.05
"""How long the cursor rests before the candidate under it is read: holding a key reads one, not fifty."""

FILTER_HINT = "state:incorrect step:local by:human label: is:pinned speedup>1.2 n=7 !word"


class RunScreen(RunPanes):
    """Follows one run at a time."""

    SCOPE = Scope.RUN
    BINDINGS: ClassVar[list[BindingType]] = list(bindings(Scope.RUN))

    class Updated(Message):
        """Something happened to the run."""

        def __init__(self, update: RunUpdate) -> None:
            super().__init__()
            self.update = update

    class DetailRead(Message):
        """A candidate was read."""

        def __init__(self, detail: Detail) -> None:
            super().__init__()
            self.detail = detail

    def __init__(self, context: Context, run: int | None) -> None:
        super().__init__(context, RunView(run or 0))
        self.base = Base.PARENT
        self._around: int | None = 3
        self._goto: int | None = None
        self._reading: Timer | None = None
        self._log_waits = False

    # The run that is shown

    def on_mount(self) -> None:
        """Starts with the tree."""
        self.tree_view.focus()
        if self.view.run_id:
            self._begin()

    def open_run(self, run: int, candidate: int | None = None) -> None:
        """Shows a run, perhaps at one of its candidates."""
        if run != self.view.run_id:
            self.stop_following()
            self.view = RunView(run)
            self.detail = None
            if self.is_mounted:
                self.tree_view.show(self.view.tree)
                self._show_detail()
                self._begin()
        self._goto = candidate
        self._go_on()

    def _begin(self) -> None:
        source = self.context.sources.run(self.context.db, self.view.run_id)
        follower = Follower(self, source, self.Updated, self.context.poll_seconds)
        self.follow(cast("Follower[object]", follower))

    def on_run_screen_updated(self, message: Updated) -> None:
        """Takes in what happened."""
        update = message.update
        if update.overview.run.id != self.view.run_id:
            return
        current = self.view.tree.current
        change = self.view.fold_in(update)
        self.tree_view.apply(change, update.overview.run.best)
        self.query_one("#chart", Chart).show(self.view.progress, update.overview.run.budget)
        self._go_on()
        if self.view.tree.current != current:
            self._read(now=update.first)
        self.refresh_titles()
        self._log_waits = True
        if update.first:
            self.refresh_status()
        for answer in self.view.answers:
            self.answered(answer)
        if update.first and (warning := self.view.warning(self.context.now())):
            self.say(warning, Tone.WARN)

    def _go_on(self) -> None:
        """Goes to the candidate that was asked for, once it is known."""
        if self._goto is not None and self._goto in self.view.tree:
            self.go_to(self._goto)
            self._goto = None

    def refresh_status(self) -> None:
        """Once a second the status; the log with it, since a line more moves all its lines."""
        super().refresh_status()
        if self._log_waits:
            self._log_waits = False
            self._show_log()
        current = self.view.tree.current
        if current is not None and current.state is CandidateState.PROPOSING:
            # What a model is writing goes into the database without an event.
            self._read(now=True)

    def go_to(self, number: int) -> bool:
        """Puts the cursor on a candidate; a filter that hides it is cleared."""
        tree = self.view.tree
        if number not in tree:
            return False
        if not tree.move_to(number):
            tree.set_filter(None)
            tree.move_to(number)
        self.tree_view.rows_changed()
        self._read()
        self.refresh_titles()
        return True

    # The candidate under the cursor

    def on_line_view_cursor_moved(self, message: LineView.CursorMoved) -> None:
        """Reads the candidate, once the cursor rests."""
        if message.view is self.tree_view:
            self._read()
            self._show_log()
            self.refresh_titles()
            self.refresh_status()

    def _read(self, now: bool = False) -> None:
        if self._reading is not None:
            self._reading.stop()
        self._reading = self.set_timer(0.001 if now else READ_AFTER_S, self._start_reading)

    def _start_reading(self) -> None:
        wanted = self.wanted()
        if wanted is not None:
            self.run_worker(
                partial(self._read_in_thread, wanted), thread=True, exclusive=True, exit_on_error=False, group="reading"
            )
        else:
            self.detail = None
            self._show_detail()

    def wanted(self) -> Wanted | None:
        """What is to be read for the cursor."""
        candidate = self.view.tree.current
        if candidate is None:
            return None
        against: int | None = None
        if self.base is Base.PARENT:
            against = candidate.parent
        elif self.base is Base.ROOT:
            against = self.view.tree.top_ancestor(candidate.number)
        elif self.base is Base.BEST and self.view.overview is not None:
            against = self.view.overview.run.best
        if against == candidate.number:
            against = None
        return Wanted(self.view.run_id, candidate.number, self.base, against, self._around)

    def _read_in_thread(self, wanted: Wanted) -> None:
        self.post_message(self.DetailRead(read_detail(self.context.db, wanted)))

    def on_run_screen_detail_read(self, message: DetailRead) -> None:
        """Shows what was read, if the cursor is still there."""
        if message.detail.wanted == self.wanted() and message.detail != self.detail:
            before = self.detail.wanted if self.detail else None
            self.detail = message.detail
            self._show_detail(keep_place=before == self.detail.wanted)

    def _show_detail(self, *, keep_place: bool = False) -> None:
        detail, candidate = self.detail, self.view.tree.current
        if detail is None or candidate is None:
            self.diff_view.show(Diff(), "no candidate yet")
            self.inspector.show_facts(())
        else:
            self.diff_view.show(detail.diff, detail.note, keep_place=keep_place)
            found = facts(candidate, detail.evaluation, detail.proposal, self.context.glyphs, detail.calls)
            self.inspector.show_facts(found, keep_place=keep_place)
        if self.candidate_log:
            self._show_log()
        self.refresh_titles()

    def _show_log(self, *, switched: bool = False) -> None:
        current = self.view.tree.cursor
        if self.candidate_log:
            evaluation = self.detail.evaluation if self.detail and self.detail.wanted.number == current else None
            lines = [*self.view.log.of(current), *evaluation_lines(evaluation)]
            self.log_view.show(lines, None, "nothing was written down about it", to_end=False if switched else None)
        else:
            self.log_view.show(self.view.log.lines, current, "nothing has happened yet", to_end=switched or None)

    # Messages of the panes

    def on_tree_view_opened(self) -> None:
        """A closer look is the diff."""
        self.diff_view.focus()

    def on_log_view_switched(self) -> None:
        """The log of the run, or of the candidate."""
        self.candidate_log = not self.candidate_log
        self._show_log(switched=True)
        self.refresh_titles()

    # Looking

    def action_filter(self) -> None:
        """Asks for a filter and applies it while it is typed."""
        before = self.view.tree.filter
        prompt = TextPrompt("/", before.text if before else "", FILTER_HINT, self._try_filter)
        self.app.push_screen(prompt, partial(self._filtered, before.text if before else ""))

    def _filtered(self, before: str, text: str | None) -> None:
        if (problem := self._try_filter(before if text is None else text)) != "":
            self.say(problem, Tone.WARN)

    def _try_filter(self, text: str) -> str:
        try:
            wanted = parse_filter(text)
        except FilterError as error:
            return str(error)
        tree = self.view.tree
        cursor = tree.cursor
        tree.set_filter(wanted)
        self.tree_view.rows_changed()
        if tree.cursor != cursor:
            self._read()
        self.refresh_titles()
        return "" if tree.rows or not len(tree) else "no candidate passes"

    def action_match(self, forward: bool) -> None:
        """To the next candidate that passes the filter."""
        self._look(lambda: self.view.tree.next_match(forward))

    def action_clear(self) -> None:
        """Clears the filter, else the marks."""
        if self.view.tree.filter is not None:
            self._try_filter("")
        elif self.view.tree.marked:
            self.view.tree.marked.clear()
            self.tree_view.rows_changed()
            self.refresh_titles()

    def action_follow(self) -> None:
        """The cursor goes with the newest candidate, or stays."""
        self._look(lambda: self.view.tree.follow(not self.view.tree.following))
        self.refresh_status()

    def action_best(self) -> None:
        """To the best candidate."""
        best = self.view.overview.run.best if self.view.overview else None
        if best is None or not self.go_to(best):
            self.say("there is no best candidate yet", Tone.WARN)

    def action_base(self) -> None:
        """Compares with something else."""
        self.base = self.base.next
        self._read(now=True)
        self.say(f"comparing with the {self.base}" if self.base is not Base.SOURCE else "showing the source")

    def on_diff_view_context_wanted(self, message: DiffView.ContextWanted) -> None:
        """Shows more or fewer lines around changes."""
        self._around = next_context(self._around, message.direction)
        self._read(now=True)

    def _look(self, move: Callable[[], object]) -> None:
        before = self.view.tree.cursor
        move()
        self.tree_view.rows_changed()
        if self.view.tree.cursor != before:
            self._read()
            self._show_log()
        self.refresh_titles()
