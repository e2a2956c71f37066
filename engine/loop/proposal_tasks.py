"""The proposals under way: asks a proposer, and keeps what it answers."""

from __future__ import annotations

import asyncio
import json

from engine.loop.picture import Picture
from engine.proposing.proposer import ProposalFailed, ProposalRequest, Proposer, ProposerUnavailable
from engine.records import Candidate, CandidateState, Gate, Step
from engine.search.choice import generator
from engine.search.novelty import Structure, novelty, structure_of
from engine.settings import RunSettings
from engine.store.run_store import RunStore


class ProposalTasks:
    """The requests that a proposer works on. `unavailable` says why no more proposals can be had, "" while they can."""

    def __init__(self, store: RunStore, proposer: Proposer, settings: RunSettings, picture: Picture) -> None:
        self._store = store
        self._proposer = proposer
        self._settings = settings
        self._picture = picture
        self._running: dict[int, asyncio.Task[None]] = {}
        self._tried: list[Structure] | None = None
        self.unavailable = ""

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """What is running now."""
        return list(self._running.values())

    def ask(self) -> None:
        """Asks for everything that is to be proposed and not asked for yet.

        What an engine that died had asked for is asked again, and draws what it would have drawn.
        """
        for candidate in self._picture.in_states(CandidateState.PROPOSING):
            if candidate.number not in self._running:
                self._running[candidate.number] = asyncio.create_task(self._propose(self._request(candidate)))

    def _request(self, candidate: Candidate) -> ProposalRequest:
        number = candidate.number
        random = generator(self._settings.seed, -number)
        context = tuple(self._store.why(number).get("context", {}).get("numbers", ()))
        return ProposalRequest(number, candidate.parent, candidate.step, random, candidate.proposer, context)

    async def _propose(self, request: ProposalRequest) -> None:
        try:
            proposed = await self._proposer.propose(request)
        except ProposalFailed as failure:
            if isinstance(failure, ProposerUnavailable):
                self.unavailable = str(failure)
            self._store.proposal_failed(request.number, str(failure), failure.tried)
            return
        gate = self._settings.gate
        gated = gate is Gate.ALL or (gate is Gate.STRUCTURAL and request.step is Step.STRUCTURAL)
        # Edits are not asked to be new in structure.
        structure = structure_of(proposed.source) if request.step is Step.STRUCTURAL else None
        self._store.proposed(
            request.number,
            proposed.source,
            proposed.idea,
            proposed.recipe,
            gated,
            tried=proposed.tried,
            novelty=self._novelty(structure) if structure else None,
            structure=json.dumps(structure, sort_keys=True) if structure else None,
        )

    def _novelty(self, structure: Structure) -> float:
        """How far a new structure is from all that the run has tried."""
        if self._tried is None:
            self._tried = [json.loads(text) for text in self._store.structures()]
        found = novelty(structure, self._tried)
        if found:
            self._tried.append(structure)
        return found

    def collect(self) -> None:
        """Lets go of finished work; what went wrong in it ends the engine."""
        for number in [number for number, task in self._running.items() if task.done()]:
            task = self._running.pop(number)
            if not task.cancelled():
                task.result()

    def taken_away(self) -> list[asyncio.Task[None]]:
        """The requests under way whose candidate a person has pruned meanwhile."""
        return [
            task
            for number, task in self._running.items()
            if self._picture.candidates[number].state is CandidateState.ABANDONED and not task.done()
        ]
