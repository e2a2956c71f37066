"""The proposals of all runs that wait for a person: the queue, the code, and where each came from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.message import Message

from engine.records import CommandKind
from tui.asking import ask, ask_each
from tui.context import Context
from tui.keys import Scope, bindings
from tui.poller import Follower
from tui.reading import Base, Detail, Wanted, next_context, read_detail
from tui.screens.base import CockpitScreen
from tui.screens.prompts import TextPrompt
from tui.state.details import facts
from tui.state.diff import Diff
from tui.state.queue import Waiting
from tui.state.run_view import Segment
from tui.state.words import Piece, Tone, age_text, one_line, plural, step_glyph
from tui.widgets.diff_view import DiffView
from tui.widgets.inspector import Inspector
from tui.widgets.lines import LineView
from tui.widgets.pane import Pane
from tui.widgets.row_list import RowList

TWO_PANES_FROM = 100
BASES = (Base.PARENT, Base.BEST, Base.SOURCE)


class ApprovalsScreen(CockpitScreen):
    """A queue on the left, the proposal under the cursor on the right."""

    SCOPE = Scope.QUEUE
    BINDINGS: ClassVar[list[BindingType]] = list(bindings(Scope.QUEUE))

    class Updated(Message):
        """The queue changed."""

        def __init__(self, waiting: list[Waiting]) -> None:
            super().__init__()
            self.waiting = waiting

    class DetailRead(Message):
        """A proposal was read."""

        def __init__(self, detail: Detail) -> None:
            super().__init__()
            self.detail = detail

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.waiting: dict[tuple[int, int], Waiting] = {}
        self.marked: set[tuple[int, int]] = set()
        self.base = Base.PARENT
        self._around: int | None = 3
        self.detail: Detail | None = None

    def compose_body(self) -> ComposeResult:
        """Queue, code and facts."""
        glyphs = self.context.glyphs
        queue = RowList[tuple[int, int]]("nothing waits for approval", glyphs.more, id="queue")
        with Horizontal(id="approvals"):
            with Vertical(id="queue-side"):
                yield Pane("Waiting for approval", queue, glyphs.more, id="queue-pane")
                yield Pane("Inspector", Inspector("nothing is chosen", id="why"), glyphs.more, id="why-pane")
            yield Pane("Code", DiffView(glyphs, id="code"), glyphs.more, id="code-pane")

    @property
    def queue(self) -> RowList[tuple[int, int]]:
        """The queue."""
        return cast("RowList[tuple[int, int]]", self.query_one("#queue", RowList))

    @property
    def code(self) -> DiffView:
        """The code."""
        return self.query_one("#code", DiffView)

    def on_mount(self) -> None:
        """Follows the queue."""
        self.queue.focus()
        source = self.context.sources.waiting(self.context.db)
        self.follow(cast("Follower[object]", Follower(self, source, self.Updated, self.context.poll_seconds)))

    # What is shown

    def on_approvals_screen_updated(self, message: Updated) -> None:
        """Shows the queue as it is now."""
        self.waiting = {each.key: each for each in message.waiting}
        self.marked &= set(self.waiting)
        self._show_queue()
        self.refresh_status()
        self._read()

    def _show_queue(self) -> None:
        several = len({run for run, _ in self.waiting}) > 1
        rows = [self._row(each, several) for each in self.waiting.values()]
        self.queue.show(list(self.waiting), rows)
        about = f"{len(self.marked)} marked" if self.marked else plural(len(self.waiting), "proposal")
        self.query_one("#queue-pane", Pane).about([(about, Tone.ACCENT if self.marked else Tone.MUTED)])

    def _row(self, waiting: Waiting, several: bool) -> tuple[Sequence[Piece], Sequence[Piece]]:
        glyphs, candidate = self.context.glyphs, waiting.candidate
        mark = glyphs.marked if waiting.key in self.marked else " "
        run = f"{one_line(waiting.overview.run.name)} " if several else ""
        left = [
            (f"{mark} ", Tone.ACCENT),
            (run, Tone.MUTED),
            (f"{step_glyph(candidate.step, glyphs)} ", Tone.ACCENT),
            (f"{candidate.number} ", Tone.STRONG),
            (one_line(candidate.idea), Tone.PLAIN),
        ]
        age = age_text(self.context.now() - candidate.created_at)
        return left, [(f"{age} ", Tone.MUTED)]

    def on_line_view_cursor_moved(self, message: LineView.CursorMoved) -> None:
        """Reads the proposal under the cursor."""
        if message.view is self.queue:
            self._read()

    def wanted(self) -> Wanted | None:
        """What is to be read for the cursor."""
        waiting = self._current()
        if waiting is None:
            return None
        candidate, against = waiting.candidate, None
        if self.base is Base.PARENT:
            against = candidate.parent
        elif self.base is Base.BEST:
            against = waiting.overview.run.best
        return Wanted(candidate.run, candidate.number, self.base, against, self._around)

    def _current(self) -> Waiting | None:
        key = self.queue.current
        return self.waiting.get(key) if key is not None else None

    def _read(self) -> None:
        wanted = self.wanted()
        if wanted is None:
            self.detail = None
            self._show_detail()
            return
        reading = partial(self._read_in_thread, wanted)
        self.run_worker(reading, thread=True, exclusive=True, exit_on_error=False, group="reading")

    def _read_in_thread(self, wanted: Wanted) -> None:
        self.post_message(self.DetailRead(read_detail(self.context.db, wanted)))

    def on_approvals_screen_detail_read(self, message: DetailRead) -> None:
        """Shows the proposal, if the cursor is still there."""
        if message.detail.wanted == self.wanted():
            same = self.detail is not None and self.detail.wanted == message.detail.wanted
            self.detail = message.detail
            self._show_detail(keep_place=same)

    def _show_detail(self, *, keep_place: bool = False) -> None:
        detail, waiting = self.detail, self._current()
        inspector = self.query_one("#why", Inspector)
        about = self.query_one("#code-pane", Pane).about
        if detail is None or waiting is None:
            self.code.show(Diff(), "nothing is chosen")
            inspector.show_facts(())
            about(())
            return
        self.code.show(detail.diff, detail.note, keep_place=keep_place)
        found = facts(waiting.candidate, detail.evaluation, detail.proposal, self.context.glyphs)
        inspector.show_facts(found, keep_place=keep_place)
        about([(detail.title, Tone.MUTED)])

    def segments(self) -> Sequence[Segment]:
        """How much waits."""
        count = len(self.waiting)
        runs = len({run for run, _ in self.waiting})
        parts = [Segment("Approvals", Tone.STRONG)]
        if count:
            parts.append(Segment(f"{self.context.glyphs.waiting} {count} waiting", Tone.WARN))
            parts.append(Segment(f"in {plural(runs, 'run')}", Tone.MUTED))
        else:
            parts.append(Segment("nothing waits", Tone.MUTED))
        return parts

    # Panes

    def on_resize(self, event: events.Resize) -> None:
        """One side where there is little room."""
        self._arrange(event.size.width)

    def on_descendant_focus(self) -> None:
        """Shows the side that has the focus."""
        self._arrange(self.size.width)

    def _arrange(self, width: int) -> None:
        narrow = width < TWO_PANES_FROM
        self.query_one("#queue-side").display = not narrow or self.focused is not self.code
        self.query_one("#code-pane").display = not narrow or self.focused is self.code

    def action_next_pane(self) -> None:
        """From the queue to the code, the facts and back."""
        for part in ("#queue-side", "#code-pane"):
            self.query_one(part).display = True
        self.cycle([self.queue, self.code, self.query_one("#why", Inspector)])

    # Deciding

    def action_approve(self) -> None:
        """Lets the proposal's code run."""
        if (waiting := self._chosen()) is not None:
            run, number = waiting.key
            self.in_thread(partial(ask, self.context.db, run, CommandKind.APPROVE, number))

    def action_approve_marked(self) -> None:
        """Approves all marked proposals."""
        wanted = sorted(self.marked)
        self.marked.clear()
        self._show_queue()
        self.in_thread(partial(ask_each, self.context.db, wanted, CommandKind.APPROVE))

    def action_reject(self) -> None:
        """Turns the proposal down, with a reason."""
        if (waiting := self._chosen()) is not None:
            prompt = TextPrompt(
                f"Why is {waiting.candidate.number} rejected? ", hint="Enter rejects it, Escape does not"
            )
            self.app.push_screen(prompt, partial(self._reject, waiting.key))

    def _reject(self, key: tuple[int, int], reason: str | None) -> None:
        if reason is None:
            self.say("nothing was done")
        else:
            self.in_thread(partial(ask, self.context.db, key[0], CommandKind.REJECT, key[1], reason.strip()))

    def _chosen(self) -> Waiting | None:
        waiting = self._current()
        if waiting is None:
            self.say("nothing waits for approval", Tone.WARN)
        return waiting

    def action_mark(self) -> None:
        """Marks the proposal, or takes the mark away, and goes on."""
        if (key := self.queue.current) is not None:
            self.marked ^= {key}
            self._show_queue()
            self.queue.action_cursor_down()

    def action_open(self) -> None:
        """Looks at the proposal in its run."""
        if (waiting := self._chosen()) is not None:
            self.post_message(self.OpenRun(*waiting.key))

    def on_diff_view_context_wanted(self, message: DiffView.ContextWanted) -> None:
        """Shows more or fewer lines around changes."""
        self._around = next_context(self._around, message.direction)
        self._read()

    def action_base(self) -> None:
        """Compares with something else."""
        self.base = BASES[(BASES.index(self.base) + 1) % len(BASES)]
        self._read()
        self.say(f"comparing with the {self.base}" if self.base is not Base.SOURCE else "showing the source")
