from __future__ import annotations

import threading
from pathlib import Path

from textual.message import Message
from textual.message_pump import MessagePump

from engine.records import CommandKind
from engine.store.control import Control
from engine.store.database import StoreError
from tests.tui.grove import Grove
from tui.poller import DatabaseSources, Follower, SourceFailed


def test_the_first_look_brings_everything_and_the_next_nothing(grove: Grove, db: Path) -> None:
    source = DatabaseSources().run(db, grove.run)
    first = source.poll()
    assert first is not None
    assert first.first
    assert [candidate.number for candidate in first.candidates] == list(range(1, 13))
    assert source.poll() is None
    source.close()


def test_later_looks_bring_only_what_changed(grove: Grove, db: Path) -> None:
    source = DatabaseSources().run(db, grove.run)
    source.poll()
    number = grove.grow(2, "a late one", 1.3)
    news = source.poll()
    assert news is not None
    assert not news.first
    assert [candidate.number for candidate in news.candidates] == [number]
    assert [event.event.kind for event in news.events] == [
        "candidate_added",
        "candidate_moved",
        "candidate_moved",
        "candidate_evaluated",
    ]


def test_a_heartbeat_brings_no_candidates(grove: Grove, db: Path) -> None:
    source = DatabaseSources().run(db, grove.run)
    source.poll()
    grove.store.heartbeat()
    news = source.poll()
    assert news is not None
    assert news.candidates == ()
    assert news.events == ()


def test_pruning_brings_the_whole_subtree(grove: Grove, db: Path) -> None:
    source = DatabaseSources().run(db, grove.run)
    source.poll()
    with Control(db) as control:
        control.ask(grove.run, CommandKind.PRUNE, 5)
    grove.store.obey()
    news = source.poll()
    assert news is not None
    assert {candidate.number for candidate in news.candidates if candidate.pruned} == {5, 6, 7, 8, 10, 11, 12}


def test_the_queue_of_approvals_is_told_when_it_changes(grove: Grove, db: Path) -> None:
    source = DatabaseSources().waiting(db)
    waiting = source.poll()
    assert waiting is not None
    assert [each.key for each in waiting] == [(1, 9), (1, 10)]
    grove.grow(1, "changes nothing in the queue", 1.1)
    assert source.poll() is None
    with Control(db) as control:
        control.ask(grove.run, CommandKind.APPROVE, 9)
    grove.store.obey()
    waiting = source.poll()
    assert waiting is not None
    assert [each.key for each in waiting] == [(1, 10)]


class Listener(MessagePump):
    """Collects what is posted."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Message] = []
        self.enough = threading.Event()

    def post_message(self, message: Message) -> bool:
        self.heard.append(message)
        if len(self.heard) >= 2:
            self.enough.set()
        return True


class News(Message):
    """What the source said."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class Scripted:
    """Says what it was given, one piece a look; fails where the piece is an error."""

    def __init__(self, *pieces: str | Exception | None) -> None:
        self.pieces = list(pieces)
        self.closed = threading.Event()

    def poll(self) -> str | None:
        piece = self.pieces.pop(0) if self.pieces else None
        if isinstance(piece, Exception):
            raise piece
        return piece

    def close(self) -> None:
        self.closed.set()


def test_a_source_that_fails_is_asked_again_and_says_so_once() -> None:
    listener = Listener()
    source = Scripted(StoreError("locked"), StoreError("locked"), None, "news")
    follower = Follower(listener, source, News, 0.001)
    follower.start()
    assert listener.enough.wait(5)
    follower.stop()
    assert source.closed.wait(5)
    failed, news = listener.heard
    assert isinstance(failed, SourceFailed)
    assert failed.text == "locked"
    assert isinstance(news, News)
    assert news.text == "news"
