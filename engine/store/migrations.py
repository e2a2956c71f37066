"""The schema, as migrations that are never edited once shipped."""

from __future__ import annotations

from sqlite_utils import Database
from sqlite_utils.migrations import Migrations

MIGRATIONS = Migrations("kernelgrove")

_FIRST_SCHEMA = """
CREATE TABLE texts (
    hash TEXT PRIMARY KEY,
    body TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE tasks (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    family TEXT NOT NULL,
    format TEXT NOT NULL,
    path TEXT NOT NULL,
    source_hash TEXT NOT NULL REFERENCES texts(hash),
    audit TEXT,
    UNIQUE (name, source_hash)
);

CREATE TABLE cases (
    id INTEGER PRIMARY KEY,
    task INTEGER NOT NULL REFERENCES tasks(id),
    position INTEGER NOT NULL,
    name TEXT NOT NULL,
    weight REAL NOT NULL,
    overrides TEXT NOT NULL,
    small_overrides TEXT NOT NULL,
    atol REAL,
    rtol REAL,
    UNIQUE (task, position)
);

CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    task INTEGER NOT NULL REFERENCES tasks(id),
    state TEXT NOT NULL,
    settings TEXT NOT NULL,
    budget INTEGER NOT NULL,
    seed INTEGER NOT NULL,
    judge_seed INTEGER NOT NULL,
    device TEXT NOT NULL DEFAULT '',
    facts TEXT,
    best INTEGER,
    created_at REAL NOT NULL,
    started_at REAL,
    ended_at REAL,
    ended_by TEXT,
    reason TEXT,
    active_seconds REAL NOT NULL DEFAULT 0
);

CREATE TABLE leases (
    run INTEGER PRIMARY KEY REFERENCES runs(id),
    epoch INTEGER NOT NULL,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    process_started TEXT NOT NULL,
    taken_at REAL NOT NULL,
    heartbeat_at REAL NOT NULL,
    released INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE candidates (
    run INTEGER NOT NULL REFERENCES runs(id),
    number INTEGER NOT NULL,
    parent INTEGER,
    step TEXT NOT NULL,
    proposer TEXT NOT NULL,
    state TEXT NOT NULL,
    idea TEXT NOT NULL DEFAULT '',
    depth INTEGER NOT NULL,
    source_hash TEXT REFERENCES texts(hash),
    fingerprint TEXT,
    verdict TEXT,
    reason TEXT,
    labels TEXT NOT NULL DEFAULT '[]',
    time_us REAL,
    speedup REAL,
    reward REAL,
    duplicate_of INTEGER,
    approved INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    pruned INTEGER NOT NULL DEFAULT 0,
    pinned INTEGER NOT NULL DEFAULT 0,
    created_at REAL NOT NULL,
    changed_at REAL NOT NULL,
    PRIMARY KEY (run, number),
    FOREIGN KEY (run, parent) REFERENCES candidates(run, number),
    FOREIGN KEY (run, duplicate_of) REFERENCES candidates(run, number)
) WITHOUT ROWID;
CREATE INDEX candidates_by_state ON candidates(run, state);
CREATE INDEX candidates_by_parent ON candidates(run, parent);
CREATE INDEX candidates_by_source ON candidates(run, source_hash);

CREATE TABLE proposals (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    candidate INTEGER NOT NULL,
    proposer TEXT NOT NULL,
    state TEXT NOT NULL,
    why TEXT NOT NULL DEFAULT '{}',
    request TEXT NOT NULL DEFAULT '{}',
    recipe TEXT,
    prompt_hash TEXT REFERENCES texts(hash),
    response_hash TEXT REFERENCES texts(hash),
    tokens_in INTEGER NOT NULL DEFAULT 0,
    tokens_out INTEGER NOT NULL DEFAULT 0,
    reserved_usd REAL NOT NULL DEFAULT 0,
    cost_usd REAL NOT NULL DEFAULT 0,
    failure TEXT,
    started_at REAL NOT NULL,
    ended_at REAL,
    FOREIGN KEY (run, candidate) REFERENCES candidates(run, number)
);
CREATE INDEX proposals_by_candidate ON proposals(run, candidate);

CREATE TABLE evaluations (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    candidate INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    state TEXT NOT NULL,
    verdict TEXT,
    document TEXT,
    log_hash TEXT REFERENCES texts(hash),
    started_at REAL NOT NULL,
    ended_at REAL,
    FOREIGN KEY (run, candidate) REFERENCES candidates(run, number)
);
CREATE INDEX evaluations_by_candidate ON evaluations(run, candidate);

CREATE TABLE measurements (
    id INTEGER PRIMARY KEY,
    evaluation INTEGER NOT NULL REFERENCES evaluations(id),
    case_name TEXT NOT NULL,
    kind TEXT NOT NULL,
    time_us REAL NOT NULL,
    low_us REAL NOT NULL,
    high_us REAL NOT NULL,
    mode TEXT NOT NULL,
    cache TEXT NOT NULL,
    detail TEXT NOT NULL DEFAULT '{}'
);
CREATE INDEX measurements_by_evaluation ON measurements(evaluation);

CREATE TABLE baselines (
    id INTEGER PRIMARY KEY,
    task INTEGER NOT NULL REFERENCES tasks(id),
    case_name TEXT NOT NULL,
    name TEXT NOT NULL,
    tier TEXT NOT NULL,
    kind TEXT NOT NULL,
    device TEXT NOT NULL,
    toolchain TEXT NOT NULL,
    time_us REAL NOT NULL,
    measured_at REAL NOT NULL
);
CREATE INDEX baselines_by_task ON baselines(task, case_name, name, tier);

CREATE TABLE exhaustions (
    run INTEGER NOT NULL REFERENCES runs(id),
    parent INTEGER NOT NULL,
    step TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (run, parent, step)
) WITHOUT ROWID;

CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run INTEGER REFERENCES runs(id),
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    candidate INTEGER,
    body TEXT NOT NULL
);
CREATE INDEX events_by_run ON events(run, id);
CREATE INDEX events_by_candidate ON events(run, candidate, id);

CREATE TABLE commands (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs(id),
    kind TEXT NOT NULL,
    candidate INTEGER,
    argument TEXT NOT NULL DEFAULT '',
    state TEXT NOT NULL,
    answer TEXT NOT NULL DEFAULT '',
    author TEXT NOT NULL DEFAULT '',
    created_at REAL NOT NULL,
    answered_at REAL
);
CREATE INDEX commands_by_state ON commands(run, state, id);

CREATE VIEW run_summary AS
SELECT runs.id, runs.name, tasks.name AS task, runs.state, runs.ended_by, runs.budget,
       count(candidates.number) AS candidates,
       sum(candidates.verdict = 'correct') AS correct,
       runs.best, best.time_us AS best_time_us, best.speedup AS best_speedup,
       datetime(runs.created_at, 'unixepoch') AS created
FROM runs
JOIN tasks ON tasks.id = runs.task
LEFT JOIN candidates ON candidates.run = runs.id
LEFT JOIN candidates AS best ON best.run = runs.id AND best.number = runs.best
GROUP BY runs.id;

CREATE VIEW best_candidates AS
SELECT runs.id AS run, runs.name, candidates.number, candidates.idea, candidates.proposer,
       candidates.time_us, candidates.speedup, candidates.labels, texts.body AS source
FROM runs
JOIN candidates ON candidates.run = runs.id AND candidates.number = runs.best
LEFT JOIN texts ON texts.hash = candidates.source_hash;
"""


@MIGRATIONS()
def m001_first_schema(db: Database) -> None:
    """Creates everything of the first version. `exhaustions.parent` is 0 for the root."""
    _execute(db, _FIRST_SCHEMA)


_MODEL_CALLS = """
CREATE TABLE model_calls (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    candidate INTEGER NOT NULL,
    proposal INTEGER NOT NULL REFERENCES proposals(id),
    state TEXT NOT NULL,
    model TEXT NOT NULL,
    destination TEXT NOT NULL,
    template TEXT NOT NULL,
    version INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    prompt_hash TEXT NOT NULL REFERENCES texts(hash),
    skills TEXT NOT NULL DEFAULT '[]',
    dropped TEXT NOT NULL DEFAULT '[]',
    partial TEXT NOT NULL DEFAULT '',
    response_hash TEXT REFERENCES texts(hash),
    usage TEXT NOT NULL DEFAULT '{}',
    tokens_in INTEGER NOT NULL DEFAULT 0,
    tokens_out INTEGER NOT NULL DEFAULT 0,
    tokens_reasoning INTEGER NOT NULL DEFAULT 0,
    reserved_usd REAL,
    cost_usd REAL,
    failure TEXT,
    detail TEXT NOT NULL DEFAULT '',
    started_at REAL NOT NULL,
    ended_at REAL,
    FOREIGN KEY (run, candidate) REFERENCES candidates(run, number)
);
CREATE INDEX model_calls_by_candidate ON model_calls(run, candidate, id);
CREATE INDEX model_calls_spending ON model_calls(
    run, state, failure, tokens_in, tokens_out, tokens_reasoning, cost_usd, reserved_usd
);
"""


@MIGRATIONS()
def m002_model_calls(db: Database) -> None:
    """Adds the requests to models: prompts and answers by their hashes, tokens, and money in US dollars.

    Until a request has ended, `partial` holds what has been written of its answer and `reserved_usd` what it may cost.
    """
    _execute(db, _MODEL_CALLS)


_STEERED_SEARCH = """
ALTER TABLE candidates ADD COLUMN novelty REAL;
ALTER TABLE candidates ADD COLUMN pruned_by INTEGER;
ALTER TABLE candidates ADD COLUMN retest INTEGER NOT NULL DEFAULT 0;
ALTER TABLE candidates ADD COLUMN low_us REAL;
ALTER TABLE candidates ADD COLUMN high_us REAL;
CREATE INDEX candidates_by_fingerprint ON candidates(run, fingerprint);
CREATE INDEX candidates_by_time ON candidates(run, time_us) WHERE verdict = 'correct' AND time_us IS NOT NULL;

WITH RECURSIVE cut(run, number, root) AS (
    SELECT child.run, child.number, child.number FROM candidates AS child
    LEFT JOIN candidates AS parent ON parent.run = child.run AND parent.number = child.parent
    WHERE child.pruned AND NOT coalesce(parent.pruned, 0)
    UNION ALL
    SELECT child.run, child.number, cut.root FROM candidates AS child
    JOIN cut ON child.run = cut.run AND child.parent = cut.number WHERE child.pruned
)
UPDATE candidates SET pruned_by =
    (SELECT root FROM cut WHERE cut.run = candidates.run AND cut.number = candidates.number)
WHERE pruned;
"""


@MIGRATIONS()
def m003_steered_search(db: Database) -> None:
    """Adds what steering a search needs.

    `pruned_by` is the candidate whose pruning took this one out; `low_us` and `high_us` the 95% interval of
    `time_us`; `retest` says that a judged candidate is to be judged again.
    """
    _execute(db, _STEERED_SEARCH)


_OWN_BASELINES = """
CREATE TABLE run_baselines (
    run INTEGER NOT NULL REFERENCES runs(id),
    position INTEGER NOT NULL,
    name TEXT NOT NULL,
    source_hash TEXT NOT NULL REFERENCES texts(hash),
    PRIMARY KEY (run, position)
) WITHOUT ROWID;
"""


@MIGRATIONS()
def m004_own_baselines(db: Database) -> None:
    """People's own kernels that a run compares its candidates with, as they were when the run was made."""
    _execute(db, _OWN_BASELINES)


@MIGRATIONS()
def m005_baselines_taken_over(db: Database) -> None:
    """Adds to a measured eager baseline what later runs take over: its band, and the others relative to it."""
    _execute(db, "ALTER TABLE baselines ADD COLUMN detail TEXT NOT NULL DEFAULT '{}';\n")


@MIGRATIONS()
def m006_structures(db: Database) -> None:
    """Adds what a structural candidate does, so that the next one can be told from all of them."""
    _execute(db, "ALTER TABLE candidates ADD COLUMN structure_hash TEXT REFERENCES texts(hash);\n")


def _execute(db: Database, statements: str) -> None:
    for statement in statements.split(";\n"):
        if statement.strip():
            db.execute(statement)
