"""The skill memory's tables, as named migrations that the owner of the database applies in order.

A migration is never edited once shipped. Each runs inside the caller's transaction and neither opens
connections nor commits. Runs, candidates and proposals are named by their numbers without foreign
keys, because their tables belong to someone else.
"""

from __future__ import annotations

from sqlite_utils import Database
from sqlite_utils.migrations import Migrations

MIGRATIONS = Migrations("skills")

_CONTENT = """
    revision INTEGER NOT NULL CHECK (revision >= 1),
    name TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('validity', 'speed')),
    statement TEXT NOT NULL,
    scope TEXT NOT NULL,
    stage TEXT NOT NULL CHECK (stage IN ('compile', 'run', 'numerics')),
    pattern TEXT NOT NULL,
    probe TEXT NOT NULL,
    counter_probe TEXT NOT NULL,
    expect TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('active', 'unverified', 'disputed', 'retired')),
    enabled INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    author TEXT NOT NULL,
    reason TEXT NOT NULL,
    changed_at REAL NOT NULL
"""


@MIGRATIONS(name="0001_create_tables")
def _create_tables(db: Database) -> None:
    """Skills, all their revisions, and what is known about them.

    `content_revision` is the latest revision that changed what the rule claims: what was learned from
    it on still holds. `status_revision` is the latest that changed its status, and `status_author` says
    who did. `shipped_as` and `shipped_digest` tell which shipped rule a skill came from and
    what that said. The newest row of skill_revisions repeats the row of skills.
    """
    statements = (
        f"""CREATE TABLE skills (
            id INTEGER PRIMARY KEY,
            {_CONTENT},
            content_revision INTEGER NOT NULL,
            status_revision INTEGER NOT NULL,
            status_author TEXT NOT NULL,
            shipped_as TEXT UNIQUE,
            shipped_digest TEXT,
            UNIQUE (name)
        )""",
        "CREATE INDEX skills_by_status ON skills (status, enabled)",
        f"""CREATE TABLE skill_revisions (
            skill INTEGER NOT NULL REFERENCES skills (id) ON DELETE CASCADE,
            {_CONTENT},
            PRIMARY KEY (skill, revision)
        )""",
        """CREATE TABLE skill_evidence (
            id INTEGER PRIMARY KEY,
            skill INTEGER NOT NULL,
            revision INTEGER NOT NULL,
            run INTEGER NOT NULL,
            candidate INTEGER NOT NULL,
            relation TEXT NOT NULL CHECK (relation IN ('failed_this_way', 'obeyed', 'contradicts', 'measured')),
            detail TEXT NOT NULL,
            toolchain TEXT NOT NULL,
            created_at REAL NOT NULL,
            UNIQUE (skill, revision, run, candidate, relation),
            FOREIGN KEY (skill, revision) REFERENCES skill_revisions (skill, revision) ON DELETE CASCADE
        )""",
        "CREATE INDEX skill_evidence_by_candidate ON skill_evidence (run, candidate)",
        """CREATE TABLE skill_uses (
            id INTEGER PRIMARY KEY,
            skill INTEGER NOT NULL,
            revision INTEGER NOT NULL,
            run INTEGER NOT NULL,
            proposal INTEGER NOT NULL,
            created_at REAL NOT NULL,
            UNIQUE (run, proposal, skill, revision),
            FOREIGN KEY (skill, revision) REFERENCES skill_revisions (skill, revision) ON DELETE CASCADE
        )""",
        "CREATE INDEX skill_uses_by_skill ON skill_uses (skill, revision)",
        """CREATE TABLE skill_verifications (
            id INTEGER PRIMARY KEY,
            skill INTEGER NOT NULL,
            revision INTEGER NOT NULL,
            verdict TEXT NOT NULL CHECK (verdict IN ('confirmed', 'refuted', 'untestable')),
            detail TEXT NOT NULL,
            toolchain TEXT NOT NULL,
            created_at REAL NOT NULL,
            FOREIGN KEY (skill, revision) REFERENCES skill_revisions (skill, revision) ON DELETE CASCADE
        )""",
        "CREATE INDEX skill_verifications_by_toolchain ON skill_verifications (skill, toolchain)",
    )
    for statement in statements:
        db.conn.execute(statement)
