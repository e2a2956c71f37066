"""What every screen is given: where the data is, what time it is, and how things look and start."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tui.poller import DatabaseSources, Sources
from tui.state.words import UNICODE, Glyphs

StartEngine = Callable[[int], str]
"""Starts an engine for a run and returns a sentence that says so, or why it did not."""


@dataclass(frozen=True, slots=True)
class Context:
    """Shared by the screens and never changed. `poll_seconds` is the pause between looks at the database."""

    db: Path
    glyphs: Glyphs = UNICODE
    now: Callable[[], float] = time.time
    start_engine: StartEngine | None = None
    poll_seconds: float = 0.5
    sources: Sources = field(default_factory=DatabaseSources)
