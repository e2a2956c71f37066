"""A small table with the keys of all panes; its cells are rich text, which parses no markup."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import DataTable

from tui.keys import KEYS, Scope
from tui.state.words import Tone

_ACTIONS = {"first": "scroll_top", "last": "scroll_bottom", "half_down": "page_down", "half_up": "page_up"}


class RunTable(DataTable[Text]):
    """A `DataTable` that moves like the other panes; fine for a hundred rows."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(",".join(key.keys), _ACTIONS.get(key.action, key.action), key.word, show=False, tooltip=key.help)
        for key in KEYS
        if key.scope is Scope.MOVE
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"line--{tone}" for tone in Tone}
