"""Appends events inside the caller's transaction."""

from __future__ import annotations

import sqlite3
import time

from engine.events import Event, candidate_of, to_json


def record(connection: sqlite3.Connection, run: int | None, event: Event) -> None:
    """Writes an event; needs the open transaction of the change it tells of."""
    connection.execute(
        "INSERT INTO events (run, at, kind, candidate, body) VALUES (?, ?, ?, ?, ?)",
        (run, time.time(), event.kind, candidate_of(event), to_json(event)),
    )
