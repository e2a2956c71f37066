"""The database: everything a search knows, in one SQLite file.

`database` opens connections, `run_store` is the engine's side, `control` the side of people and
launchers, `reader` the read-only side of screens. SQL lives here and in `skills.memory` only.
"""
