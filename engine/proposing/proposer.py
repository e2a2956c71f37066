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


class ProposerUnavailable(ProposalFailed):
    """No proposal can be had any more until a person sees to it: a wrong key, an absent server."""


@dataclass(frozen=True, slots=True)
class ProposalRequest:
    """One request: `number` is the candidate to make, `parent` its parent or None for the root.

    `proposer` is who was chosen to make it, `context` the candidates that the policy picked to learn from, in the
    order in which they are to be shown.
    """

    number: int
    parent: int | None
    step: Step
    random: Random
    proposer: ProposerKind = ProposerKind.COMPILER
    context: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Proposed:
    """What a proposer made: a module's text, its one-line idea, and how to make it again if there is a recipe.

    `tried` holds the recipes that were tried before and could not be written.
    """

    source: str
    idea: str
    recipe: Mapping[str, Any] | None = None
    tried: tuple[Mapping[str, Any], ...] = ()


class Proposer(Protocol):
    """Makes candidates, several at a time if asked to; everything offered is offered once."""

    @property
    def kind(self) -> ProposerKind:
        """Who makes the next candidate."""

    def exhausted(self, parent: int | None, step: Step) -> str | None:
        """One sentence if there is nothing more to offer for a parent and step, else None."""

    async def propose(self, request: ProposalRequest) -> Proposed:
        """Makes one candidate.

        Raises:
            ProposalFailed: nothing usable came of it.
        """
