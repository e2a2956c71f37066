"""All keys that work where `?` was pressed, from the registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from engine.records import Step
from tui.keys import Key, Scope, help_sections
from tui.state.words import Glyphs, Tone, step_glyph
from tui.widgets.lines import tone_style


class HelpScreen(ModalScreen[None]):
    """Keys by where they work, then what the signs mean; q, Escape or ? close it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark", "dismiss", "close"),
        Binding("j,down", "scroll(1)", "down"),
        Binding("k,up", "scroll(-1)", "up"),
        Binding("ctrl+d,pagedown", "scroll(10)", "half down"),
        Binding("ctrl+u,pageup", "scroll(-10)", "half up"),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"line--{tone}" for tone in Tone} | {"line--key"}

    def __init__(self, scopes: Sequence[Scope], glyphs: Glyphs) -> None:
        super().__init__()
        self._scopes = scopes
        self._glyphs = glyphs

    def compose(self) -> ComposeResult:
        """A page that scrolls."""
        with VerticalScroll(id="help"):
            yield Static(id="help-text", markup=False)

    def on_mount(self) -> None:
        """Writes the page, once styles are known."""
        self.query_one("#help-text", Static).update(self._page())

    def _page(self) -> Text:
        title = tone_style(self, Tone.TITLE)
        key_style = tone_style(self, "key")
        page = Text()
        for name, keys in help_sections(self._scopes):
            page.append(f"{name}\n", title)
            for key in _together(keys):
                page.append(f"  {key.shown:<10}", key_style)
                page.append(f"{key.help}\n")
            page.append("\n")
        page.append("Signs\n", title)
        for sign, meaning in self._signs():
            page.append(f"  {sign:<10}", key_style)
            page.append(f"{meaning}\n")
        return page

    def _signs(self) -> list[tuple[str, str]]:
        glyphs = self._glyphs
        return [
            (step_glyph(Step.STRUCTURAL, glyphs), "structural step: a whole new kernel"),
            (step_glyph(Step.LOCAL, glyphs), "local step: an edit of the parent's kernel"),
            (glyphs.good, "correct; the number beside it is the speedup against eager"),
            (glyphs.bad, "not correct, or unusable; the words beside it say how"),
            (glyphs.waiting, "waits for approval"),
            (glyphs.working, "is being judged"),
            (f"{glyphs.best} {glyphs.pinned} {glyphs.pruned}", "best, pinned, pruned"),
            (f"{glyphs.below}2.10x", "the best that grew from it"),
        ]

    def action_scroll(self, lines: int) -> None:
        """Scrolls the page."""
        self.query_one("#help", VerticalScroll).scroll_relative(y=lines, animate=False)


def _together(keys: Sequence[Key]) -> Sequence[Key]:
    """The registry's order, without what is said twice."""
    return [key for index, key in enumerate(keys) if key.help not in {each.help for each in keys[:index]}]
