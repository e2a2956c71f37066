"""Reads everything about one candidate that the panes show; called in threads."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from engine.records import Evaluation, ModelCall
from engine.store.database import StoreError
from engine.store.reader import ProposalNote, Reader
from tui.state.diff import Diff, as_text, diff, whole


class Base(StrEnum):
    """What a candidate is compared with."""

    PARENT = "parent"
    ROOT = "root"
    BEST = "best"
    SOURCE = "source"

    @property
    def next(self) -> Base:
        """The one after this, around the end."""
        bases = list(Base)
        return bases[(bases.index(self) + 1) % len(bases)]


CONTEXTS: tuple[int | None, ...] = (1, 3, 8, 20, None)
"""How many equal lines can be shown around changes; None shows all."""


def next_context(context: int | None, direction: int) -> int | None:
    """More (1) or fewer (-1) equal lines than `context`."""
    return CONTEXTS[max(0, min(CONTEXTS.index(context) + direction, len(CONTEXTS) - 1))]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A candidate to read, what to compare it with, and how many equal lines to show around changes."""

    run: int
    number: int
    base: Base = Base.PARENT
    against: int | None = None
    context: int | None = 3


@dataclass(frozen=True, slots=True)
class Detail:
    """What was read. `title` says what the diff compares, `note` why there is none, `prompt` what was sent last."""

    wanted: Wanted
    source: str
    diff: Diff
    title: str
    note: str
    evaluation: Evaluation | None
    proposal: ProposalNote | None
    calls: tuple[ModelCall, ...] = ()
    prompt: str = ""

    @property
    def diff_text(self) -> str:
        """The diff for copying; the whole source where nothing was compared."""
        if self.wanted.against is None:
            return self.source
        return as_text(self.diff, f"candidate {self.wanted.against}", f"candidate {self.wanted.number}")


def read_detail(db: Path, wanted: Wanted) -> Detail:
    """Reads and compares; what cannot be read becomes a note."""
    try:
        with Reader(db) as reader:
            source = reader.source(wanted.run, wanted.number)
            old = reader.source(wanted.run, wanted.against) if wanted.against else None
            evaluation = reader.evaluation(wanted.run, wanted.number)
            proposal = reader.proposal(wanted.run, wanted.number)
            calls = tuple(reader.calls(wanted.run, wanted.number))
            prompt = "\n\n".join(text for _, text in reader.prompt(calls[-1].id)) if calls else ""
            written = reader.response(calls[-1].id) if source is None and calls else ""
    except (StoreError, sqlite3.Error, ValueError, TypeError) as error:
        return Detail(wanted, "", Diff(), f"{wanted.number}", f"cannot be read: {error}", None, None)
    if source is None and written:
        # What a model is writing, or wrote without use, is what there is to see.
        title = f"{wanted.number}, {'being written' if calls[-1].ended_at is None else 'the last answer'}"
        return Detail(wanted, written, whole(written), title, "", evaluation, proposal, calls, prompt)
    if source is None:
        return Detail(
            wanted, "", Diff(), f"{wanted.number}", "it has no source yet", evaluation, proposal, calls, prompt
        )
    if old is None:
        return Detail(wanted, source, whole(source), _whole_title(wanted), "", evaluation, proposal, calls, prompt)
    shown = diff(old, source, wanted.context)
    relation = "" if wanted.base is Base.SOURCE else f"{wanted.base} "
    title = f"{wanted.number} against {relation}{wanted.against}"
    if shown.empty:
        return Detail(wanted, source, Diff(), title, "both texts are the same", evaluation, proposal, calls, prompt)
    return Detail(wanted, source, shown, title, "", evaluation, proposal, calls, prompt)


def _whole_title(wanted: Wanted) -> str:
    return f"{wanted.number}, source" if wanted.base is Base.SOURCE else f"{wanted.number}, new: no {wanted.base}"
