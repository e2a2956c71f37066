from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest
from sqlite_utils import Database

from skills.memory import SkillMemory
from skills.migrations import MIGRATIONS


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@pytest.fixture(params=["tuples", "rows"])
def connection(request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    database = sqlite3.connect(":memory:", isolation_level=None)
    if request.param == "rows":
        database.row_factory = sqlite3.Row
    database.execute("PRAGMA foreign_keys = ON")
    database.execute("BEGIN IMMEDIATE")
    MIGRATIONS.apply(Database(database))
    yield database
    database.close()


@pytest.fixture
def memory(connection: sqlite3.Connection) -> SkillMemory:
    return SkillMemory(connection, clock=Clock())
