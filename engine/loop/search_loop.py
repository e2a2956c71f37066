"""Drives one run: chooses, has candidates proposed and judged, obeys people, until something ends it.

Decisions belong to `engine.search`, verdicts to `engine.judging`, every durable fact to the run store.
The loop holds only what is running right now; all else is read from the store, so a new loop goes on
exactly where a killed one stopped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from engine.ends import End, end_of
from engine.loop.evaluation_tasks import EvaluationTasks, Judge
from engine.loop.picture import Picture
from engine.loop.proposal_tasks import ProposalTasks
from engine.proposing.answers import AnswerError
from engine.proposing.manual import ManualProposer
from engine.proposing.prices import short_of_money
from engine.proposing.proposer import Proposer
from engine.records import CandidateState, ProposerKind, RunState, Step
from engine.search.choice import Choice, generator
from engine.search.context import Context, choose_context
from engine.search.policies import find_policy
from engine.search.snapshot import ROOT
from engine.settings import RunSettings
from engine.store.run_store import RunStore
from engine.store.steering import Refused

POLL_S = 0.2
HEARTBEAT_S = 2.0

MAX_REPEATS = 50
"""How many proposals in a row may repeat what the run holds; they use no budget, and a model may do so for ever."""

_OPEN = (CandidateState.PROPOSING, CandidateState.QUEUED, CandidateState.EVALUATING)


class SearchLoop:
    """One run under way. `run` returns when the search ended or was told to stop."""

    def __init__(self, store: RunStore, judges: Sequence[Judge], proposer: Proposer, settings: RunSettings) -> None:
        self._store = store
        self._proposer = proposer
        self._settings = settings
        self._policy = find_policy(settings.policy.name)
        self._picture = Picture(store, settings)
        self._evaluations = EvaluationTasks(store, judges, settings)
        self._proposals = ProposalTasks(store, proposer, settings, self._picture)

    async def run(self) -> None:
        """Searches until the budget, the time or the tree is used up, or a person stops it."""
        try:
            while not await self._turn():
                await self._pause_between_turns()
            # What was asked while the run came to its end is answered by what it came to.
            self._store.obey(_Ended())
        finally:
            await self._cancel(self._tasks)

    async def _turn(self) -> bool:
        """One round of obeying, starting and ending; returns whether the run is over."""
        self._evaluations.collect()
        self._proposals.collect()
        self._picture.refresh()
        self._store.obey(self)
        self._picture.refresh()
        await self._cancel([*self._evaluations.taken_away(self._picture), *self._proposals.taken_away()])
        run = self._store.run()
        if run.state is RunState.STOPPING:
            await self._cancel(self._tasks)
            self._store.set_state(RunState.STOPPED, "stopped by a person", ended_by="stop")
            return True
        if run.state is RunState.PAUSED:
            return False
        self._proposals.ask()
        self._evaluations.start(self._picture)
        if self._proposals.unavailable:
            return self._give_up()
        standing = self._picture.standing(run, time.time())
        self._tell_of_a_stall()
        end = end_of(self._settings, standing)
        if end is not None and end.by == "budget" and standing.judged < run.budget and self._waiting:
            return False
        if end is not None:
            return self._wind_down(end)
        return self._expand(run.budget)

    def _tell_of_a_stall(self) -> None:
        if self._picture.since_best >= self._settings.stall_after and not self._picture.stall_told:
            self._picture.stall_told = True
            self._store.tell_of_a_stall(self._picture.since_best)

    # Expanding

    @property
    def _asked_of_people(self) -> int:
        proposing = self._picture.in_states(CandidateState.PROPOSING)
        return sum(candidate.proposer is ProposerKind.MANUAL for candidate in proposing)

    @property
    def _waiting(self) -> int:
        """How many candidates wait for people, for approval or for an answer; the search goes on meanwhile."""
        return self._picture.count(CandidateState.AWAITING_APPROVAL) + self._asked_of_people

    @property
    def _under_way(self) -> int:
        return self._picture.count(*_OPEN) - self._asked_of_people

    def _expand(self, budget: int) -> bool:
        """Starts proposals while there is room for them; returns whether nothing is left to do."""
        most = self._settings.workers * self._evaluations.devices
        while self._under_way < most and self._waiting < self._settings.max_waiting and self._picture.used < budget:
            if self._picture.repeats >= MAX_REPEATS:
                reason = f"the last {self._picture.repeats} proposals repeated what the run holds"
                return self._wind_down(End("exhausted", reason))
            choice = self._choose()
            if choice is None:
                if self._under_way or self._waiting:
                    return False
                reason = self._proposer.exhausted(None, Step.STRUCTURAL) or "nothing is left to offer"
                return self._store.finish(reason, "exhausted")
            short = self._short_of_money(choice.step)
            if short is not None:
                return False if self._under_way or self._waiting else self._wind_down(End("cost", short))
            parent = self._picture.candidates.get(choice.parent)
            why = {**choice.why, "context": asdict(self._context(choice, self._picture.next_number))}
            self._store.add_candidate(parent, choice.step, self._proposer.kind, why)
            self._picture.refresh()
            self._proposals.ask()
        return False

    def _choose(self) -> Choice | None:
        """Asks the policy, keeping what turns out to be exhausted, until it names work that can be done."""
        number = self._picture.next_number
        while True:
            draw = generator(self._settings.seed, number)
            choice = self._policy(self._picture.snapshot, self._settings.policy, draw)
            if choice is None:
                return None
            parent = None if choice.parent == ROOT else choice.parent
            reason = self._proposer.exhausted(parent, choice.step)
            if reason is None:
                return choice
            self._picture.exhaust(choice.parent, choice.step, reason)
            if choice.step is Step.STRUCTURAL and choice.parent != ROOT:
                everywhere = self._proposer.exhausted(None, Step.STRUCTURAL)
                if everywhere is not None:
                    self._picture.exhaust(ROOT, Step.STRUCTURAL, everywhere)

    def _context(self, choice: Choice, number: int | str) -> Context:
        """What the proposer of a candidate is shown: what the policy wants, else what is usual for the step."""
        if choice.context is not None:
            return Context(choice.context, f"chosen by {self._settings.policy.name}")
        draw = generator(self._settings.seed, f"context of {number}")
        pool = self._settings.policy.context_pool
        return choose_context(self._picture.snapshot, choice.parent, choice.step, pool, draw)

    def check_answer(self, parent: int | None, text: str) -> None:
        """Makes sure that a person's answer to a prompt can be used.

        Raises:
            Refused: it cannot, or nobody was asked.
        """
        if not isinstance(self._proposer, ManualProposer):
            raise Refused(f"run {self._store.run_id} asks no person for proposals")
        try:
            self._proposer.read(parent, text)
        except AnswerError as error:
            raise Refused(str(error)) from error

    def taker(self, number: int, step: Step) -> tuple[ProposerKind, Mapping[str, Any]]:
        """Who takes a step that a person forces, and what is shown to them.

        Raises:
            Refused: nothing is left of budget, money or what there is to offer.
        """
        budget = self._store.run().budget
        if self._picture.used >= budget:
            raise Refused(f"the budget of {budget} candidates is used up; raise it first")
        reason = self._proposer.exhausted(number or None, step) or self._short_of_money(step)
        if reason is not None:
            raise Refused(reason)
        choice = Choice(number, step, {})
        return self._proposer.kind, {"context": asdict(self._context(choice, f"forced {self._picture.next_number}"))}

    # Coming to an end

    def _wind_down(self, end: End) -> bool:
        """Judges what was already made, then ends the run."""
        return False if self._under_way else self._store.finish(end.reason, end.by)

    def _give_up(self) -> bool:
        """Judges what was already made, then fails the run: it can be resumed once the proposer can be had again."""
        if self._under_way:
            return False
        self._store.set_state(RunState.FAILED, self._proposals.unavailable, ended_by="proposer")
        return True

    def _short_of_money(self, step: Step) -> str | None:
        """One sentence if what is left of the money may not cover another proposal."""
        if self._settings.max_cost is None or self._proposer.kind is not ProposerKind.LLM:
            return None
        return short_of_money(self._settings, self._store.ledger.spending(), step)

    # Waiting and cancelling

    @property
    def _tasks(self) -> list[asyncio.Task[None]]:
        return [*self._evaluations.tasks, *self._proposals.tasks]

    async def _pause_between_turns(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(POLL_S)

    async def _cancel(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        cancelled = list(tasks)
        for task in cancelled:
            task.cancel()
        await asyncio.gather(*cancelled, return_exceptions=True)


class _Ended:
    """Nothing is proposed any more."""

    def taker(self, number: int, step: Step) -> tuple[ProposerKind, Mapping[str, Any]]:
        raise Refused("the search has ended")

    def check_answer(self, parent: int | None, text: str) -> None:
        raise Refused("the search has ended")


async def keep_heartbeat(store: RunStore) -> None:
    """Says every two seconds that the engine lives, until cancelled."""
    while True:
        store.heartbeat()
        await asyncio.sleep(HEARTBEAT_S)
