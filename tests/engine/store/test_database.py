"""Opening: what is refused, in words a person can act on, and what is left untouched."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from sqlite_utils import Database

from engine.records import Spending
from engine.store.control import Control
from engine.store.database import StoreError, file_system_of, open_read_only, open_writable
from engine.store.migrations import MIGRATIONS
from engine.store.reader import Reader
from skills.migrations import MIGRATIONS as SKILL_MIGRATIONS


def test_a_file_that_is_no_database_is_refused_and_left_alone(db: Path) -> None:
    db.write_bytes(b"not a database at all, but long enough to be read as a header" * 20)
    before = db.read_bytes()
    with pytest.raises(StoreError, match="not a SQLite database"):
        open_writable(db)
    assert db.read_bytes() == before


def test_a_newer_schema_is_refused_by_readers_and_writers_and_left_alone(db: Path, run: int) -> None:
    connection = sqlite3.connect(db)
    connection.execute(
        "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('kernelgrove', 'm999_future', '')"
    )
    connection.commit()
    for open_it in (open_writable, open_read_only):
        with pytest.raises(StoreError, match="m999_future"):
            open_it(db)
    assert connection.execute("SELECT count(*) FROM runs").fetchone() == (1,)
    connection.close()


def test_a_database_of_the_first_version_is_brought_up_to_date_by_whoever_opens_it(db: Path) -> None:
    old = Database(sqlite3.connect(db, isolation_level=None))
    MIGRATIONS.apply(old, stop_before="m002_model_calls")
    SKILL_MIGRATIONS.apply(old)
    old.execute("INSERT INTO texts VALUES ('h', 'softmax')")
    old.execute("INSERT INTO tasks VALUES (1, 'softmax', '', '', '', 'h', NULL)")
    old.execute(
        "INSERT INTO runs (id, name, task, state, settings, budget, seed, judge_seed, created_at)"
        " VALUES (1, 'old', 1, 'done', '{\"budget\": 3}', 3, 0, 0, 0)"
    )
    old.close()
    with Reader(db) as reader:
        assert [overview.run.name for overview in reader.runs()] == ["old"]
        assert reader.spending(1) == Spending()
        assert reader.calls(1, 1) == []


def test_a_missing_database_is_not_created_by_reading(db: Path) -> None:
    with pytest.raises(StoreError, match="there is no database"):
        Reader(db)
    assert not db.exists()


def test_a_missing_folder_is_said_plainly(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        Control(tmp_path / "nowhere" / "runs.db")


def test_a_reader_cannot_write(db: Path, run: int) -> None:
    connection = open_read_only(db)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("DELETE FROM runs")
    connection.close()


def test_foreign_keys_hold_on_every_connection(db: Path, run: int) -> None:
    for _ in range(2):
        database = open_writable(db)
        with pytest.raises(sqlite3.IntegrityError):
            database.conn.execute("INSERT INTO leases VALUES (99, 1, 'h', 1, '', 0, 0, 0)")
        database.close()


def test_the_file_system_is_read_from_the_longest_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/sda / ext4 rw 0 0\nserver:/home /home nfs4 rw 0 0\ntmpfs /home/local\\040disk tmpfs rw 0 0\n"
    )
    assert file_system_of(Path("/srv"), mounts) == "ext4"
    assert file_system_of(Path("/home/ann/runs"), mounts) == "nfs4"
    assert file_system_of(Path("/home/local disk/runs"), mounts) == "tmpfs"


def test_the_views_summarise_runs_for_any_sqlite_browser(db: Path, run: int) -> None:
    connection = sqlite3.connect(db)
    assert connection.execute("SELECT id, task, candidates FROM run_summary").fetchall() == [(run, "softmax", 0)]
    assert connection.execute("SELECT * FROM best_candidates").fetchall() == []
    connection.close()


def test_the_shipped_skills_are_there_after_the_first_run(db: Path, run: int) -> None:
    with Reader(db) as reader:
        assert len(reader.skills().find()) >= 5


@pytest.mark.parametrize("name", ["50%20 done", "a#b", "what?", "caf\u00e9"])
def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    with Control(folder / "runs.db"):
        pass
    with Reader(folder / "runs.db") as reader:
        assert reader.runs() == []
    assert {path.name for path in tmp_path.iterdir()} == {name}


def test_what_was_pruned_before_is_restored_as_a_whole(tmp_path: Path) -> None:
    db = tmp_path / "old.db"
    connection = sqlite3.connect(db, isolation_level=None)
    old = Database(connection)
    MIGRATIONS.apply(old, stop_before="m003_steered_search")
    SKILL_MIGRATIONS.apply(old)
    connection.execute("INSERT INTO texts VALUES ('h', 'source')")
    connection.execute("INSERT INTO tasks (name, family, format, path, source_hash) VALUES ('t', '', '', '', 'h')")
    connection.execute(
        "INSERT INTO runs (name, task, state, settings, budget, seed, judge_seed, created_at)"
        " VALUES ('r', 1, 'done', '{}', 5, 0, 0, 0)"
    )
    connection.executemany(
        "INSERT INTO candidates (run, number, parent, step, proposer, state, depth, pruned, created_at, changed_at)"
        " VALUES (1, ?, ?, 'local', 'compiler', 'evaluated', 1, ?, 0, 0)",
        [(1, None, 0), (2, 1, 1), (3, 2, 1), (4, 1, 0), (5, 4, 1)],
    )
    connection.close()
    with Reader(db) as reader:
        assert [candidate.pruned for candidate in reader.candidates(1)] == [False, True, True, False, True]
    connection = sqlite3.connect(db)
    taken_out_by = connection.execute("SELECT number, pruned_by FROM candidates ORDER BY number").fetchall()
    connection.close()
    assert taken_out_by == [(1, None), (2, 2), (3, 2), (4, None), (5, 5)]
