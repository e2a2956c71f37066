"""Opens connections to the database; refuses what would lose data.

Each thread and process opens its own connection. Writers use `transaction`, which takes the write
lock at once: a deferred transaction that later writes fails under contention whatever the timeout.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from sqlite_utils import Database

from engine.store.migrations import MIGRATIONS
from skills.migrations import MIGRATIONS as SKILL_MIGRATIONS

BUSY_TIMEOUT_MS = 10_000
_NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "lustre", "ceph", "beegfs"}
)
ALLOW_NETWORK_VARIABLE = "KERNELGROVE_ALLOW_NETWORK_DB"


class StoreError(Exception):
    """The database cannot be used; the message says why and what to do."""


def open_writable(path: Path) -> Database:
    """Opens the database for writing, creates it if absent, and applies missing migrations.

    Raises:
        StoreError: the file is no database, is locked for long, was written by a newer version, or
            lies on a network file system.
    """
    if not path.parent.is_dir():
        raise StoreError(f"the folder {path.parent} of the database does not exist; create it or choose another --db")
    refuse_network_file_system(path)
    try:
        connection = sqlite3.connect(path, isolation_level=None)
        _prepare(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        db = Database(connection)
        _refuse_newer_schema(db, path)
        if MIGRATIONS.pending(db) or SKILL_MIGRATIONS.pending(db):
            with transaction(db):
                MIGRATIONS.apply(db)
                SKILL_MIGRATIONS.apply(db)
    except sqlite3.DatabaseError as error:
        raise _plain(error, path) from error
    return db


def open_read_only(path: Path) -> sqlite3.Connection:
    """Opens an existing database for reading only; rows come as `sqlite3.Row`.

    One that an older version wrote is brought up to date first.

    Raises:
        StoreError: the file is missing, is no database, was written by a newer version, or by an older one and cannot
            be written.
    """
    if not path.exists():
        raise StoreError(f"there is no database at {path}; start a run first, or name one with --db")
    try:
        connection = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True, isolation_level=None)
        _prepare(connection)
        db = Database(connection)
        _refuse_newer_schema(db, path)
        if MIGRATIONS.pending(db) or SKILL_MIGRATIONS.pending(db):
            open_writable(path).close()
    except sqlite3.DatabaseError as error:
        raise _plain(error, path) from error
    connection.row_factory = sqlite3.Row
    return connection


@contextmanager
def transaction(db: Database) -> Iterator[sqlite3.Connection]:
    """Runs the block in one transaction that holds the write lock from its start."""
    connection = db.conn
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _prepare(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA foreign_keys = ON")


def _refuse_newer_schema(db: Database, path: Path) -> None:
    for migrations in (MIGRATIONS, SKILL_MIGRATIONS):
        known = {migration.name for migration in migrations._migrations}
        unknown = [applied.name for applied in migrations.applied(db) if applied.name not in known]
        if unknown:
            raise StoreError(
                f"{path} was written by a newer Kernelgrove (it knows {unknown[-1]}); upgrade this one, "
                "or name another database with --db"
            )


def refuse_network_file_system(path: Path) -> None:
    """Raises StoreError where WAL's shared memory does not work (https://sqlite.org/wal.html)."""
    kind = file_system_of(path.parent.resolve())
    if kind in _NETWORK_FILE_SYSTEMS and not os.environ.get(ALLOW_NETWORK_VARIABLE):
        raise StoreError(
            f"{path} lies on a network file system ({kind}), where SQLite can lose data; choose a local --db, "
            f"or set {ALLOW_NETWORK_VARIABLE}=1 if only one machine uses it"
        )


def file_system_of(folder: Path, mounts: Path = Path("/proc/mounts")) -> str:
    """The type of file system that holds a folder, "" where the system does not say."""
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    best, kind = -1, ""
    for line in lines:
        fields = line.split()
        if len(fields) < 3:
            continue
        mount = fields[1].replace("\\040", " ")
        if folder.is_relative_to(mount) and len(mount) >= best:
            best, kind = len(mount), fields[2]
    return kind


def _plain(error: sqlite3.DatabaseError, path: Path) -> StoreError:
    text = str(error)
    if "locked" in text:
        return StoreError(
            f"{path} stayed locked by another program for {BUSY_TIMEOUT_MS // 1000} s; close it and retry"
        )
    if "not a database" in text or "malformed" in text:
        return StoreError(f"{path} is not a SQLite database or is damaged; name another one with --db")
    if "unable to open" in text or "readonly" in text:
        return StoreError(f"{path} cannot be opened for this; check its permissions, or name another one with --db")
    return StoreError(f"{path} cannot be used: {text}")
