"""Follows the database for a screen: a thread with its own reader looks, a message brings what is new.

A look costs microseconds while nothing was written. What happens between two looks arrives as one
message, so a screen is never told more often than the pause between looks allows.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from textual.message import Message
from textual.message_pump import MessagePump

from engine.events import CandidateFlagged, RecordedEvent, SkillChanged, candidate_of
from engine.records import CandidateState
from engine.store.database import StoreError
from engine.store.reader import Reader, RunOverview
from tui.state.queue import Waiting
from tui.state.run_view import RunUpdate

FIRST_EVENTS = 1_000
"""How many of the newest events a run's log starts with."""

BATCH = 5_000
"""How many events one look reads at most; the rest comes with the next."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Source(Protocol[T_co]):
    """Something that can be asked again and again what is new; asked from one thread only."""

    def poll(self) -> T_co | None:
        """What is new, None if nothing is.

        Raises:
            StoreError, sqlite3.Error: the database cannot be read just now.
        """

    def close(self) -> None:
        """Gives up what it holds."""


class Sources(Protocol):
    """The screens' way to their data."""

    def runs(self, db: Path) -> Source[list[RunOverview]]:
        """All runs, whenever one of them changes."""

    def run(self, db: Path, run: int) -> Source[RunUpdate]:
        """One run, whenever it changes."""

    def waiting(self, db: Path) -> Source[list[Waiting]]:
        """The proposals that wait for approval, whenever that changes."""

    def skills(self, db: Path) -> Source[int]:
        """The id of the newest change to a skill, whenever there is one."""


class DatabaseSources:
    """Sources that read the database."""

    def runs(self, db: Path) -> Source[list[RunOverview]]:
        """All runs, whenever one of them changes."""
        return _RunsSource(db)

    def run(self, db: Path, run: int) -> Source[RunUpdate]:
        """One run, whenever it changes."""
        return _RunSource(db, run)

    def waiting(self, db: Path) -> Source[list[Waiting]]:
        """The proposals that wait for approval, whenever that changes."""
        return _WaitingSource(db)

    def skills(self, db: Path) -> Source[int]:
        """The id of the newest change to a skill, whenever there is one."""
        return _SkillsSource(db)


class _DatabaseSource(Generic[T]):
    """Opens its reader at the first look, in the thread that looks."""

    def __init__(self, db: Path) -> None:
        self._db = db
        self._reader: Reader | None = None
        self._version: int | None = None

    def poll(self) -> T | None:
        """What is new, None if nothing was written since."""
        if self._reader is None:
            self._reader = Reader(self._db)
        version = self._reader.data_version()
        if version == self._version:
            return None
        news = self._look(self._reader)
        self._version = version
        return news

    def _look(self, reader: Reader) -> T | None:
        raise NotImplementedError

    def close(self) -> None:
        """Closes the reader."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None


class _RunsSource(_DatabaseSource[list[RunOverview]]):
    _last: list[RunOverview] | None = None

    def _look(self, reader: Reader) -> list[RunOverview] | None:
        runs = reader.runs()
        if runs == self._last:
            return None
        self._last = runs
        return runs


class _RunSource(_DatabaseSource[RunUpdate]):
    def __init__(self, db: Path, run: int) -> None:
        super().__init__(db)
        self._run = run
        self._cursor = 0
        self._last: RunOverview | None = None

    def _look(self, reader: Reader) -> RunUpdate | None:
        overview = reader.run(self._run)
        if overview is None:
            raise StoreError(f"there is no run {self._run} in {self._db}; press 1 for those that exist")
        first = self._last is None
        # Events are read before the rows they name, so that a row is never older than its event.
        if first:
            self._cursor = reader.last_event()
            events = [event for event in reader.latest_events(self._run, FIRST_EVENTS) if event.id <= self._cursor]
            candidates = reader.candidates(self._run)
        else:
            events = reader.events(self._run, self._cursor, BATCH)
            self._cursor = events[-1].id if events else self._cursor
            candidates = reader.candidates(self._run, _numbers(events)) if events else []
        if not events and not candidates and overview == self._last:
            return None
        self._last = overview
        return RunUpdate(overview, tuple(candidates), tuple(events), first)


def _numbers(events: list[RecordedEvent]) -> list[int] | None:
    """The candidates whose rows may have changed; None for all, since pruning tells only of the topmost."""
    numbers = set()
    for recorded in events:
        event = recorded.event
        if isinstance(event, CandidateFlagged) and event.subtree > 1:
            return None
        number = candidate_of(event)
        if number is not None:
            numbers.add(number)
    return sorted(numbers)


class _WaitingSource(_DatabaseSource[list[Waiting]]):
    _last: list[Waiting] | None = None

    def _look(self, reader: Reader) -> list[Waiting] | None:
        found = [
            Waiting(overview, candidate)
            for overview in reader.runs()
            if overview.waiting_approval
            for candidate in reader.candidates(overview.run.id)
            if candidate.state is CandidateState.AWAITING_APPROVAL
        ]
        found.sort(key=lambda waiting: waiting.candidate.created_at)
        if self._last is not None and [each.candidate for each in found] == [each.candidate for each in self._last]:
            return None
        self._last = found
        return found


class _SkillsSource(_DatabaseSource[int]):
    _cursor = 0
    _last: int | None = None

    def _look(self, reader: Reader) -> int | None:
        newest = self._last
        while events := reader.events(None, self._cursor, BATCH):
            self._cursor = events[-1].id
            newest = max((event.id for event in events if isinstance(event.event, SkillChanged)), default=newest)
        if newest == self._last and newest is not None:
            return None
        self._last = newest or 0
        return self._last


class SourceFailed(Message):
    """The data cannot be read just now; `text` is a sentence. Reading is tried again."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class Follower(Generic[T]):
    """A thread that asks a source again and again and posts what is new to a widget."""

    def __init__(self, owner: MessagePump, source: Source[T], wrap: Callable[[T], Message], seconds: float) -> None:
        self._owner = owner
        self._source = source
        self._wrap = wrap
        self._seconds = seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="follower", daemon=True)

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def stop(self) -> None:
        """Ends after the look that is under way."""
        self._stop.set()

    def _follow(self) -> None:
        said = ""
        try:
            while not self._stop.is_set():
                try:
                    news = self._source.poll()
                except (StoreError, sqlite3.Error) as error:
                    if str(error) != said:
                        said = str(error)
                        self._owner.post_message(SourceFailed(said))
                else:
                    said = ""
                    if news is not None and not self._stop.is_set():
                        self._owner.post_message(self._wrap(news))
                self._stop.wait(self._seconds)
        finally:
            self._source.close()
