"""Drives one run: chooses, has candidates proposed and judged, obeys people, until something ends it.

Decisions belong to `engine.search`, verdicts to `engine.judging`, every durable fact to the run store.
The loop holds only what is running right now; all else is read from the store, so a new loop goes on
exactly where a killed one stopped.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Protocol

from engine.judging.facts import MachineError
from engine.proposing.prices import most_usd
from engine.proposing.proposer import ProposalFailed, ProposalRequest, Proposer, ProposerUnavailable
from engine.records import Candidate, CandidateState, Evaluation, Gate, ProposerKind, RunState, Step, Verdict
from engine.search.choice import Choice, generator
from engine.search.context import Context, choose_context
from engine.search.policies import find_policy
from engine.search.reward import reward
from engine.search.snapshot import ROOT, Snapshot, allowed_steps, take_snapshot
from engine.settings import RunSettings
from engine.store.run_store import RunStore
from engine.tasks.catalogue import TaskError

POLL_S = 0.2
HEARTBEAT_S = 2.0
MAX_ATTEMPTS = 3
"""How often the judge may fail on a candidate through no fault of the candidate's."""

_OPEN = (CandidateState.PROPOSING, CandidateState.QUEUED, CandidateState.EVALUATING)


class Judge(Protocol):
    """The part of an evaluator that the loop needs."""

    async def evaluate(self, source: str, *, on_log: Callable[[str], None] | None = None) -> Evaluation:
        """Judges one candidate's text; cancelling kills what runs."""


class SearchLoop:
    """One run under way. `run` returns when the search ended or was told to stop."""

    def __init__(self, store: RunStore, judge: Judge, proposer: Proposer, settings: RunSettings) -> None:
        self._store = store
        self._judge = judge
        self._proposer = proposer
        self._settings = settings
        self._policy = find_policy(settings.policy.name)
        self._evaluating: dict[int, asyncio.Task[None]] = {}
        self._proposing: dict[int, asyncio.Task[None]] = {}
        self._unavailable = ""

    async def run(self) -> None:
        """Searches until the budget, the time or the tree is used up, or a person stops it."""
        try:
            while not await self._turn():
                await self._pause_between_turns()
            # What was asked while the run came to its end is answered by what it came to.
            self._store.obey()
        finally:
            await self._cancel([*self._evaluating.values(), *self._proposing.values()])

    async def _turn(self) -> bool:
        """One round of obeying, starting and ending; returns whether the run is over."""
        self._collect()
        self._store.obey()
        await self._cancel_what_was_taken_away()
        run = self._store.run()
        if run.state is RunState.STOPPING:
            await self._cancel([*self._evaluating.values(), *self._proposing.values()])
            self._store.set_state(RunState.STOPPED, "stopped by a person", ended_by="stop")
            return True
        if run.state is RunState.PAUSED:
            return False
        candidates = self._store.candidates()
        self._ask_again(candidates)
        self._start_evaluations(candidates)
        if self._settings.max_time is not None and run.active_seconds >= self._settings.max_time:
            return self._wind_down(candidates, "time", f"the time of {self._settings.max_time:.0f} s is used up")
        if self._unavailable:
            return self._give_up(candidates)
        counted = [candidate for candidate in candidates if _counts(candidate)]
        judged = sum(candidate.state in (CandidateState.EVALUATED, CandidateState.FAILED) for candidate in counted)
        if len(counted) >= run.budget:
            if judged < run.budget and any(not candidate.state.final for candidate in candidates):
                return False
            return self._wind_down(candidates, "budget", f"the budget of {run.budget} candidates is used up")
        return self._expand(candidates)

    def _expand(self, candidates: list[Candidate]) -> bool:
        """Starts proposals while there is room for them; returns whether nothing is left to do."""
        waiting = sum(candidate.state is CandidateState.AWAITING_APPROVAL for candidate in candidates)
        under_way = sum(candidate.state in _OPEN for candidate in candidates)
        if under_way >= self._settings.workers or waiting >= self._settings.max_waiting:
            return False
        choice = self._choose(candidates)
        if choice is None:
            if under_way or waiting:
                return False
            reason = self._proposer.exhausted(None, Step.STRUCTURAL) or "nothing is left to offer"
            return self._store.finish(reason, "exhausted")
        short = self._short_of_money(choice.step)
        if short is not None:
            return False if under_way or waiting else self._wind_down(candidates, "cost", short)
        parent = next((c for c in candidates if c.number == choice.parent), None)
        number = self._store.add_candidate(parent, choice.step, self._proposer.kind, choice.why)
        (candidate,) = (c for c in self._store.candidates(CandidateState.PROPOSING) if c.number == number)
        self._ask(candidate)
        return False

    def _choose(self, candidates: list[Candidate]) -> Choice | None:
        """Asks the policy, keeping what turns out to be exhausted, until it names work that can be done."""
        exhausted = self._store.exhaustions()
        next_number = max((candidate.number for candidate in candidates), default=0) + 1
        while True:
            snapshot = take_snapshot(candidates, exhausted, allowed_steps(self._settings.policy))
            choice = self._policy(snapshot, self._settings.policy, generator(self._settings.seed, next_number))
            if choice is None:
                return None
            parent = None if choice.parent == ROOT else choice.parent
            reason = self._proposer.exhausted(parent, choice.step)
            if reason is None:
                return replace(
                    choice, why={**choice.why, "context": asdict(self._context(snapshot, choice, next_number))}
                )
            exhausted.add((choice.parent, choice.step))
            self._store.add_exhaustion(parent, choice.step, reason)

    def _context(self, snapshot: Snapshot, choice: Choice, number: int) -> Context:
        """What the proposer of a candidate is shown: what the policy wants, else what is usual for the step."""
        if choice.context is not None:
            return Context(choice.context, f"chosen by {self._settings.policy.name}")
        draw = generator(self._settings.seed, f"context of {number}")
        return choose_context(snapshot, choice.parent, choice.step, self._settings.policy.context_pool, draw)

    # Proposals

    def _ask_again(self, candidates: list[Candidate]) -> None:
        """Asks for proposals that an engine which died had asked for; they draw what they would have drawn."""
        for candidate in candidates:
            if candidate.state is CandidateState.PROPOSING and candidate.number not in self._proposing:
                self._ask(candidate)

    def _ask(self, candidate: Candidate) -> None:
        number = candidate.number
        random = generator(self._settings.seed, -number)
        context = tuple(self._store.why(number).get("context", {}).get("numbers", ()))
        request = ProposalRequest(number, candidate.parent, candidate.step, random, candidate.proposer, context)
        self._proposing[number] = asyncio.create_task(self._propose(request))

    async def _propose(self, request: ProposalRequest) -> None:
        try:
            proposed = await self._proposer.propose(request)
        except ProposalFailed as failure:
            if isinstance(failure, ProposerUnavailable):
                self._unavailable = str(failure)
            self._store.proposal_failed(request.number, str(failure), failure.tried)
            return
        gate = self._settings.gate
        gated = gate is Gate.ALL or (gate is Gate.STRUCTURAL and request.step is Step.STRUCTURAL)
        self._store.proposed(
            request.number, proposed.source, proposed.idea, proposed.recipe, gated, tried=proposed.tried
        )

    # Evaluations

    def _start_evaluations(self, candidates: list[Candidate]) -> None:
        queued = [candidate for candidate in candidates if candidate.state is CandidateState.QUEUED]
        queued.sort(key=lambda candidate: (candidate.proposer is not ProposerKind.HUMAN, candidate.number))
        for candidate in queued[: max(self._settings.workers - len(self._evaluating), 0)]:
            if self._store.claim(candidate.number):
                self._evaluating[candidate.number] = asyncio.create_task(self._evaluate(candidate.number))

    async def _evaluate(self, number: int) -> None:
        source = self._store.source(number)
        try:
            evaluation = await self._judge.evaluate(source)
        except (MachineError, TaskError):
            raise
        except Exception as error:
            # One candidate that our own side cannot deal with must not end the search for all others.
            traceback.print_exc()
            reason = f"judging failed: {type(error).__name__}: {error}"
            evaluation = Evaluation(Verdict.INFRASTRUCTURE_ERROR, "load", reason)
        if evaluation.verdict is Verdict.INFRASTRUCTURE_ERROR and self._store.attempts(number) < MAX_ATTEMPTS:
            self._store.note(f"the machine failed, {number} is tried again: {evaluation.reason}", number)
            self._store.requeue(number, evaluation.reason)
            return
        speedup = evaluation.speedup.get("eager")
        value = reward(evaluation.verdict, speedup, self._bound_speedup(), self._settings.policy.reward)
        self._store.evaluated(number, evaluation, speedup, value)

    def _bound_speedup(self) -> float | None:
        baselines = self._store.run().facts.get("baselines", {})
        eager, bound = baselines.get("eager"), baselines.get("bound")
        return eager / bound if eager and bound else None

    # Coming to an end

    def _wind_down(self, candidates: list[Candidate], ended_by: str, reason: str) -> bool:
        """Judges what was already made, then ends the run."""
        if any(candidate.state in _OPEN for candidate in candidates):
            return False
        return self._store.finish(reason, ended_by)

    def _give_up(self, candidates: list[Candidate]) -> bool:
        """Judges what was already made, then fails the run: it can be resumed once the proposer can be had again."""
        if any(candidate.state in _OPEN for candidate in candidates):
            return False
        self._store.set_state(RunState.FAILED, self._unavailable, ended_by="proposer")
        return True

    def _short_of_money(self, step: Step) -> str | None:
        """One sentence if what is left of the money may not cover another proposal; open requests count in full."""
        limit, most = self._settings.max_cost, None
        if limit is not None and self._proposer.kind is ProposerKind.LLM:
            most = most_usd(self._settings.llm, step)
        if limit is None or most is None:
            return None
        spent = self._store.ledger.spending()
        left = limit - spent.usd - spent.reserved_usd
        if most <= left:
            return None
        return f"${spent.usd:.4f} of ${limit:g} is spent, and another proposal may cost up to ${most:.4f}"

    # Waiting and cancelling

    async def _pause_between_turns(self) -> None:
        tasks = [*self._evaluating.values(), *self._proposing.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(POLL_S)

    def _collect(self) -> None:
        """Lets go of finished work; what went wrong in it ends the engine."""
        for tasks in (self._evaluating, self._proposing):
            for number in [number for number, task in tasks.items() if task.done()]:
                task = tasks.pop(number)
                if not task.cancelled():
                    task.result()

    async def _cancel_what_was_taken_away(self) -> None:
        """Kills running work whose candidate a person has pruned meanwhile."""
        if not self._evaluating and not self._proposing:
            return
        states = {candidate.number: candidate.state for candidate in self._store.candidates()}
        gone = [task for n, task in self._evaluating.items() if states[n] is not CandidateState.EVALUATING]
        gone += [
            task
            for number, task in self._proposing.items()
            if states[number] is CandidateState.ABANDONED and not task.done()
        ]
        await self._cancel(gone)

    async def _cancel(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def keep_heartbeat(store: RunStore) -> None:
    """Says every two seconds that the engine lives, until cancelled."""
    while True:
        store.heartbeat()
        await asyncio.sleep(HEARTBEAT_S)


def _counts(candidate: Candidate) -> bool:
    """Whether a candidate uses budget: judged or failed ones do, and open ones will; people's are free."""
    if candidate.proposer is ProposerKind.HUMAN:
        return False
    return candidate.state not in (CandidateState.REJECTED, CandidateState.DUPLICATE, CandidateState.ABANDONED)
