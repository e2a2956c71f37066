"""Questions in the bottom line: one key, or a line of text. Escape and Enter alone never destroy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static


class KeyPrompt(ModalScreen[str | None]):
    """Waits for one of some keys; any other means no."""

    def __init__(self, question: str, keys: Mapping[str, str]) -> None:
        super().__init__()
        self._question = question
        self._keys = dict(keys)

    def compose(self) -> ComposeResult:
        """One line."""
        with Vertical(classes="prompt"):
            yield Static(self._question, markup=False, classes="prompt-question")

    def on_key(self, event: events.Key) -> None:
        """Answers with what the key stands for."""
        event.stop()
        event.prevent_default()
        self.dismiss(self._keys.get(event.character or event.key))


def yes_or_no(question: str) -> KeyPrompt:
    """A question whose answer is no unless `y` is pressed."""
    return KeyPrompt(f"{question} y/N", {"y": "y", "Y": "y"})


class TextPrompt(ModalScreen[str | None]):
    """Waits for a line of text; Enter gives it, Escape gives None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "cancel")]

    def __init__(
        self,
        label: str,
        value: str = "",
        hint: str = "",
        on_change: Callable[[str], str] | None = None,
    ) -> None:
        """Prepares the question.

        Args:
            label: what is asked.
            value: what stands there at first.
            hint: what helps to answer.
            on_change: called with each change; returns what is wrong with it, "" if nothing.
        """
        super().__init__()
        self._label, self._value, self._hint, self._on_change = label, value, hint, on_change

    def compose(self) -> ComposeResult:
        """A hint above, the line below."""
        with Vertical(classes="prompt"):
            yield Static(self._hint, markup=False, classes="prompt-hint")
            with Horizontal(classes="prompt-line"):
                yield Static(self._label, markup=False, classes="prompt-question")
                line = Input(self._value, compact=True, select_on_focus=False)
                line.cursor_blink = False
                yield line

    def on_input_changed(self, event: Input.Changed) -> None:
        """Tells what is wrong while typing."""
        if self._on_change is not None:
            problem = self._on_change(event.value)
            hint = self.query_one(".prompt-hint", Static)
            hint.update(problem or self._hint)
            hint.set_class(bool(problem), "-problem")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Gives the text."""
        self.dismiss(event.value)

    def action_cancel(self) -> None:
        """Gives nothing."""
        self.dismiss(None)
