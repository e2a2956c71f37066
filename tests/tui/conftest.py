"""A database, a cockpit on it, and a terminal that is the same everywhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tui.grove import Grove


@pytest.fixture(autouse=True)
def same_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """True colours, UTC, no multiplexer, nothing of the person who runs the tests."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("NO_COLOR", "TMUX", "VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def grove(db: Path) -> Iterator[Grove]:
    """A planted run whose engine, this process, is alive."""
    planted = Grove(db)
    planted.plant()
    planted.fix_times()
    yield planted
    planted.close()
