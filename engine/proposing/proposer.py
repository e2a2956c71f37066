"""What the run loop asks of a proposer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from engine.records import ProposerKind, Step


class ProposalFailed(Exception):
    """The proposer gave nothing usable; the message is one sentence.

    Attributes:
        tried: recipes that could not be written; they are not to be tried again.
    """

    def __init__(self, message: str, tried: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(message)
        self.tried = tuple(tried)


@dataclass(frozen=True, slots=True)
class ProposalRequest:
    """One request: `number` is the candidate to make, `parent` its parent or None for the root."""

    number: int
    parent: int | None
    step: Step
    random: Random


@dataclass(frozen=True, slots=True)
class Proposed:
    """What a proposer made: a module's text, its one-line idea, and how to make it again.

    `tried` holds the recipes that were tried before and could not be written.
    """

    source: str
    idea: str
    recipe: Mapping[str, Any]
    tried: tuple[Mapping[str, Any], ...] = ()


class Proposer(Protocol):
    """Makes candidates. One call at a time; everything offered is offered once."""

    kind: ProposerKind

    def exhausted(self, parent: int | None, step: Step) -> str | None:
        """One sentence if there is nothing more to offer for a parent and step, else None."""

    async def propose(self, request: ProposalRequest) -> Proposed:
        """Makes one candidate.

        Raises:
            ProposalFailed: nothing usable came of it.
        """
