"""The proposals of all runs that wait for a person."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.records import Candidate

if TYPE_CHECKING:
    from engine.store.reader import RunOverview


@dataclass(frozen=True, slots=True)
class Waiting:
    """A proposal that waits, with its run."""

    overview: RunOverview
    candidate: Candidate

    @property
    def key(self) -> tuple[int, int]:
        """Run and number."""
        return self.candidate.run, self.candidate.number
