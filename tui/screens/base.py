"""What all screens share: the line on top, the line of keys, what is said, and the least size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Container
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from tui.asking import Said
from tui.context import Context
from tui.keys import Scope
from tui.poller import Follower, SourceFailed
from tui.state.run_view import Segment
from tui.state.words import ASCII, Tone, clean
from tui.widgets.key_bar import KeyBar
from tui.widgets.lines import AsciiBar, LineView
from tui.widgets.status_bar import StatusBar

MIN_WIDTH, MIN_HEIGHT = 60, 16


class CockpitScreen(Screen[None]):
    """Base of the screens that a digit opens.

    Textual calls the `on_...` methods of a subclass and of this class both, so none calls the other.
    """

    SCOPE: ClassVar[Scope]

    class Spoke(Message):
        """A thread has something to say; `after` is called in the screen once it was said."""

        def __init__(self, said: Said, after: Callable[[Said], None] | None = None) -> None:
            super().__init__()
            self.said = said
            self.after = after

    class OpenRun(Message):
        """The person wants to see a run, perhaps at one of its candidates."""

        def __init__(self, run: int, candidate: int | None = None) -> None:
            super().__init__()
            self.run = run
            self.candidate = candidate

    def __init__(self, context: Context) -> None:
        super().__init__()
        self.context = context
        self._followers: list[Follower[object]] = []

    # Parts

    def compose(self) -> ComposeResult:
        """Status, body, keys, and what is shown instead when there is no room."""
        yield StatusBar(id="status")
        with Container(id="body"):
            yield from self.compose_body()
        yield Static(id="too-small", markup=False)
        yield KeyBar(more=self.context.glyphs.more, id="keys")

    def compose_body(self) -> ComposeResult:
        """The screen's own part."""
        raise NotImplementedError

    @property
    def status(self) -> StatusBar:
        """The line on top."""
        return self.query_one("#status", StatusBar)

    @property
    def keys(self) -> KeyBar:
        """The line of keys."""
        return self.query_one("#keys", KeyBar)

    def on_mount(self) -> None:
        """Shows the first status; the clock ticks once a second."""
        if self.context.glyphs is ASCII:
            for view in self.query(LineView):
                view.vertical_scrollbar.renderer = AsciiBar  # type: ignore[misc]
        self.refresh_status()
        self.refresh_keys()
        self.set_interval(1.0, self.refresh_status)

    def on_unmount(self) -> None:
        """No thread outlives the screen."""
        self.stop_following()

    def follow(self, follower: Follower[object]) -> None:
        """Starts a follower that ends with the screen."""
        self._followers.append(follower)
        follower.start()

    def stop_following(self) -> None:
        """Ends the followers."""
        for follower in self._followers:
            follower.stop()
        self._followers.clear()

    # Size

    def on_resize(self, event: events.Resize) -> None:
        """Below the least size only the status line is shown."""
        small = event.size.width < MIN_WIDTH or event.size.height < MIN_HEIGHT
        self.set_class(small, "-too-small")
        if small:
            self.query_one("#too-small", Static).update(
                f"This terminal is too small: {event.size.width}x{event.size.height}; "
                f"{MIN_WIDTH}x{MIN_HEIGHT} is the least."
            )

    # Saying

    def say(self, text: str, tone: Tone = Tone.ACCENT) -> None:
        """Says a sentence in the bottom line."""
        self.keys.say(clean(" ".join(text.split())), tone)

    def on_cockpit_screen_spoke(self, message: Spoke) -> None:
        """Says what a thread has to say."""
        self.say(message.said.text, message.said.tone)
        if message.after is not None:
            message.after(message.said)

    def on_source_failed(self, message: SourceFailed) -> None:
        """Says why the data cannot be read."""
        self.say(message.text, Tone.BAD)

    def in_thread(self, action: Callable[[], Said], after: Callable[[Said], None] | None = None) -> None:
        """Does something slow in a thread, then says what came of it."""
        self.run_worker(partial(self._do, action, after), thread=True, exit_on_error=False, group="doing")

    def _do(self, action: Callable[[], Said], after: Callable[[Said], None] | None) -> None:
        self.post_message(self.Spoke(action(), after))

    def on_key(self) -> None:
        """Any key makes room for the line of keys again."""
        self.keys.hush()

    # Status and keys

    def segments(self) -> Sequence[Segment]:
        """The parts of the line on top."""
        raise NotImplementedError

    def refresh_status(self) -> None:
        """Shows the line on top as it is now."""
        self.status.show_segments(list(self.segments()))

    def scopes(self) -> list[Scope]:
        """Where the keys that work now come from, innermost first."""
        inner = getattr(self.focused, "SCOPE", None)
        return [*([inner] if isinstance(inner, Scope) else []), self.SCOPE, Scope.MOVE, Scope.EVERYWHERE]

    def refresh_keys(self) -> None:
        """Shows the keys that work now."""
        self.keys.show_keys(self.scopes())

    def on_descendant_focus(self) -> None:
        """Other keys work in another pane."""
        self.refresh_keys()

    def cycle(self, views: Sequence[Widget], forward: bool = True) -> None:
        """Gives the focus to the next of some views."""
        shown = [view for view in views if isinstance(view, LineView) or view.can_focus]
        current = shown.index(self.focused) if self.focused in shown else -1
        shown[(current + (1 if forward else -1)) % len(shown)].focus(scroll_visible=False)
