"""Facts with their names in one column and their values in another."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tui.state.details import Fact, fact_rows
from tui.widgets.passage import Passage


class Inspector(Passage):
    """Draws facts."""

    def show_facts(self, facts: Sequence[Fact], *, keep_place: bool = False) -> None:
        """Shows facts from the first, or from where the window is."""
        self.show(partial(fact_rows, tuple(facts)) if facts else None, keep_place=keep_place)
