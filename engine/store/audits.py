"""What audits have found, kept with their tasks; by the dtype that inputs were cast to, and by the rules that held."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from engine.records import AUDIT_RULES, Audit


def find(connection: sqlite3.Connection, task: int | None, dtype: str | None) -> Audit | None:
    """What an audit found of a task under today's rules; None where there was none."""
    found = _all(connection, task).get(_key(dtype))
    return None if found is None else Audit.from_json(found)


def keep(connection: sqlite3.Connection, task: int, dtype: str | None, audit: Audit) -> None:
    """Keeps what an audit found."""
    document = _all(connection, task) | {_key(dtype): audit.to_json()}
    connection.execute("UPDATE tasks SET audit = ? WHERE id = ?", (json.dumps(document), task))


def _all(connection: sqlite3.Connection, task: int | None) -> dict[str, Any]:
    row = connection.execute("SELECT audit FROM tasks WHERE id = ?", (task,)).fetchone()
    document: dict[str, Any] = json.loads(row[0]) if row is not None and row[0] else {}
    return document


def _key(dtype: str | None) -> str:
    return f"{AUDIT_RULES}/{dtype or 'own'}"
