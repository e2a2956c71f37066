from __future__ import annotations

from hypothesis import settings

# No deadline, since the machine may be busy; the same examples each time, since a test must not fail by chance.
settings.register_profile("search", deadline=None, derandomize=True, database=None)
settings.load_profile("search")
