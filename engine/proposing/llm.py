"""The proposer that asks a language model.

A structural step is one request: a new kernel. A local step is two: a reviser names improvements of a kernel (left out
while nothing in its chain is correct), a tuner answers with edits. Each request is in the ledger before it is sent;
each way it can fail has its name there. A proposal repeats at most one of its requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from engine.proposing.answers import AnswerError, read_change, read_idea, read_module, read_suggestions
from engine.proposing.briefing import Briefing, Subject
from engine.proposing.findings import Findings
from engine.proposing.model import ModelClient, Reply, destination
from engine.proposing.prices import cost_usd, reserve_usd
from engine.proposing.proposer import ProposalFailed, ProposalRequest, Proposed, ProposerUnavailable
from engine.proposing.tokens import estimate_tokens
from engine.records import CallFailure, ProposerKind, Step, Usage
from engine.store.ledger import CallOrder, Ledger, OverBudget
from engine.store.reader import Reader

T = TypeVar("T")

WRITE_EVERY_S = 0.3
"""How often what is being written is kept, so that a person can read along."""

PATIENCE = 5
"""So many proposals in a row may fail because the server cannot be had; then the run waits for a person."""

TOLERATED_REPEATS = 3
"""So many times in a row a model may offer at one place what the run has already, which costs money and no budget."""

_HOPELESS = frozenset({
    CallFailure.UNREACHABLE, CallFailure.NO_ACCESS, CallFailure.NOT_FOUND, CallFailure.NO_QUOTA,
    CallFailure.BAD_REQUEST, CallFailure.WRONG_CONTENT_TYPE,
})  # fmt: skip
"""Where these come before any answer, the settings or the key are wrong: no further request helps."""

_SERVER = _HOPELESS | {
    CallFailure.RATE_LIMITED, CallFailure.SERVER_ERROR, CallFailure.TIMEOUT, CallFailure.DEADLINE, CallFailure.DROPPED,
}  # fmt: skip

_TOLD = frozenset({
    CallFailure.NO_CODE, CallFailure.NO_ENTRY_POINT, CallFailure.TWO_CLASSES, CallFailure.EDIT_NOT_FOUND,
    CallFailure.EDIT_AMBIGUOUS, CallFailure.EDIT_MALFORMED, CallFailure.NO_CHANGE, CallFailure.KNOWN,
    CallFailure.CUT_OFF,
})  # fmt: skip
"""What the model can mend when it is told."""

_REPEATED = _TOLD | {
    CallFailure.DROPPED, CallFailure.EMPTY, CallFailure.MALFORMED, CallFailure.CONTEXT_OVERFLOW,
}  # fmt: skip
"""What is worth asking again."""

_REPEATED_WITHIN = frozenset({CallFailure.SERVER_ERROR, CallFailure.TIMEOUT})
"""What is worth asking again once an answer had begun; before that, the library has tried again by itself."""

_LEAST_PROMPT, _LEAST_OUTPUT = 500, 256


class CallFailed(ProposalFailed):
    """A request failed for good."""

    def __init__(self, failure: CallFailure, detail: str) -> None:
        super().__init__(f"{str(failure).replace('_', ' ')}: {detail}")
        self.failure = failure


class LlmProposer:
    """Asks a model for kernels.

    Args:
        client: the model.
        reader: what the run has found so far.
        ledger: where requests are written down.
        run: the run's number.
        subject: what its prompts are about.
    """

    kind = ProposerKind.LLM

    def __init__(self, client: ModelClient, reader: Reader, ledger: Ledger, run: int, subject: Subject) -> None:
        self._client = client
        self._reader = reader
        self._findings = Findings(reader, run, subject)
        self._ledger = ledger
        self._run = run
        self._subject = subject
        self._llm = subject.settings.llm
        self._prompt_tokens = self._llm.prompt_tokens
        self._output_tokens = self._llm.max_output_tokens
        self._answered = False
        self._failed_in_a_row = 0

    def exhausted(self, parent: int | None, step: Step) -> str | None:
        """One sentence once the model only repeats at a place what the run has already."""
        if self._reader.repeated(self._run, parent, step, TOLERATED_REPEATS) < TOLERATED_REPEATS:
            return None
        return f"the last {TOLERATED_REPEATS} answers of {self._llm.model} there were known already"

    async def propose(self, request: ProposalRequest) -> Proposed:
        """Asks for a new kernel, or for a change of the parent.

        Raises:
            ProposalFailed: nothing usable came of it.
        """
        proposal = _Proposal(self, request.number)
        if request.step is Step.LOCAL and request.parent is not None:
            return await self._change(proposal, request)
        return await self._new(proposal, request)

    async def _new(self, proposal: _Proposal, request: ProposalRequest) -> Proposed:
        entry = self._subject.entry
        briefing = self._findings.structural(request)
        answer, source = await proposal.ask(
            "structural", briefing, lambda text: self._fresh(proposal, read_module(text, entry))
        )
        return Proposed(source, read_idea(answer, source, "a new kernel"))

    async def _change(self, proposal: _Proposal, request: ProposalRequest) -> Proposed:
        briefing, chain = self._findings.local(request)
        parent = chain[-1]
        suggestions: list[str] = []
        if any(shown.correct for shown in chain):
            suggestions = await self._revise(proposal, briefing)
        entry = self._subject.entry
        answer, source = await proposal.ask(
            "tuner",
            briefing,
            lambda text: self._fresh(proposal, read_change(text, parent.source, entry)),
            suggestions="\n".join(f"{number}. {text}" for number, text in enumerate(suggestions, 1)),
        )
        otherwise = suggestions[0] if suggestions else f"a change of {request.parent}"
        return Proposed(source, read_idea(answer, "", otherwise))

    async def _revise(self, proposal: _Proposal, briefing: Briefing) -> list[str]:
        """What a reviser suggests; the tuner does without it if the reviser's answer is of no use."""
        try:
            _, suggestions = await proposal.ask("reviser", briefing, read_suggestions)
        except CallFailed as failed:
            if failed.failure in _SERVER or failed.failure is CallFailure.OUT_OF_MONEY:
                raise
            return []
        return suggestions

    def _fresh(self, proposal: _Proposal, source: str) -> str:
        """The text, if the run does not have it yet, or the model was told so in vain: then it is a duplicate.

        Raises:
            AnswerError: the run has it, and the model can be told.
        """
        known = self._reader.with_source(self._run, source)
        if known is not None and proposal.repeats_left:
            raise AnswerError(
                CallFailure.KNOWN,
                f"this is the text of candidate {known}, which is judged already: answer with another",
            )
        return source

    # One request

    async def _request(
        self, candidate: int, attempt: int, name: str, briefing: Briefing, feedback: str, **more: str
    ) -> tuple[int, Reply, float | None]:
        """Sends a prompt; returns the number of the request, what it brought, and what was reserved for it."""
        prompt, skills = briefing.prompt(name, self._prompt_tokens, feedback=feedback, **more)
        reserve = reserve_usd(self._llm.price, prompt.tokens, self._output_tokens)
        order = CallOrder(
            candidate, self._llm.model, destination(self._llm), prompt.template, prompt.version, attempt,
            prompt.messages, skills, prompt.dropped, reserve,
        )  # fmt: skip
        try:
            call = self._ledger.begin(order, self._subject.settings.max_cost)
        except OverBudget as error:
            raise CallFailed(CallFailure.OUT_OF_MONEY, str(error)) from error
        writer = _Writer(self._ledger, call)
        try:
            reply = await self._client.ask(prompt.texts, self._output_tokens, writer)
        except BaseException:
            self._ledger.interrupt(call, writer.text)
            raise
        if reply.usage is None:
            # Nobody knows what was counted; it was at most what is reserved.
            usage = Usage(prompt.tokens, estimate_tokens(reply.text), reported=False)
            return call, replace(reply, usage=usage), reserve
        return call, reply, cost_usd(self._llm.price, reply.usage)

    def _settle(self, call: int, reply: Reply, cost: float | None) -> None:
        assert reply.usage is not None
        self._ledger.settle(call, reply.text, reply.usage, cost, reply.failure, reply.detail)
        if reply.failure in _SERVER:
            self._failed_in_a_row += 1
        else:
            self._answered, self._failed_in_a_row = True, 0

    def _shrink(self, reply: Reply, prompt_tokens: int) -> None:
        """Asks for less from now on: what fits the model's context if it said how long that is, else half."""
        if reply.context_limit is not None:
            self._output_tokens = max(_LEAST_OUTPUT, min(self._output_tokens, reply.context_limit // 2))
            room = reply.context_limit - self._output_tokens
        else:
            self._output_tokens = max(_LEAST_OUTPUT, self._output_tokens // 2)
            room = min(self._prompt_tokens, prompt_tokens) // 2
        self._prompt_tokens = max(_LEAST_PROMPT, min(self._prompt_tokens, room))

    def _give_up(self, failure: CallFailure, detail: str) -> ProposalFailed:
        """The failure of a proposal; once too many fail for the server's sake, that of the proposer."""
        hopeless = failure in _HOPELESS and not self._answered
        if hopeless or self._failed_in_a_row >= PATIENCE:
            often = "" if hopeless else f", {self._failed_in_a_row} times in a row"
            return ProposerUnavailable(
                f"the model cannot be had{often}: {detail}; see to it, then go on with: kernelgrove resume {self._run}"
            )
        return CallFailed(failure, detail)


def _worth_repeating(reply: Reply) -> bool:
    return reply.failure in _REPEATED or (reply.begun and reply.failure in _REPEATED_WITHIN)


class _Proposal:
    """The requests for one candidate; one of them may be repeated."""

    def __init__(self, proposer: LlmProposer, candidate: int) -> None:
        self._proposer = proposer
        self._candidate = candidate
        self.repeats_left = 1

    async def ask(self, name: str, briefing: Briefing, read: Callable[[str], T], **more: str) -> tuple[str, T]:
        """Sends a prompt and reads its answer; returns both the answer and what was read from it.

        Raises:
            ProposalFailed: nothing usable came of it, the one repetition included.
        """
        proposer, feedback, attempt = self._proposer, "", 1
        while True:
            call, reply, cost = await proposer._request(self._candidate, attempt, name, briefing, feedback, **more)
            reply, result = _read(reply, read)
            proposer._settle(call, reply, cost)
            if reply.failure is None:
                assert result is not None
                return reply.text, result[0]
            if not _worth_repeating(reply) or not self.repeats_left:
                raise proposer._give_up(reply.failure, reply.detail)
            self.repeats_left -= 1
            attempt += 1
            if reply.failure is CallFailure.CONTEXT_OVERFLOW:
                proposer._shrink(reply, reply.usage.input if reply.usage else 0)
            feedback = reply.detail if reply.failure in _TOLD else ""


def _read(reply: Reply, read: Callable[[str], T]) -> tuple[Reply, Sequence[T] | None]:
    """Reads an answer; one that was cut off may hold all that is needed."""
    if reply.failure not in (None, CallFailure.CUT_OFF):
        return reply, None
    try:
        result = read(reply.text)
    except AnswerError as error:
        if reply.failure is not None:
            return reply, None
        return replace(reply, failure=error.failure, detail=str(error)), None
    return replace(reply, failure=None, detail=""), [result]


class _Writer:
    """Keeps what is being written, a few times a second."""

    def __init__(self, ledger: Ledger, call: int) -> None:
        self._ledger = ledger
        self._call = call
        self._written_at = 0.0
        self.text = ""

    def __call__(self, text: str) -> None:
        self.text = text
        now = time.monotonic()
        if now - self._written_at >= WRITE_EVERY_S:
            self._written_at = now
            self._ledger.write(self._call, text)
