"""Requests to a model for one run: each is in the ledger before it is sent, each failure has its name there.

Of what goes wrong, some is repeated once, some of that with a word to the model about what was wrong. Where the server
cannot be had, proposing ends after some patience, or at once if there never was an answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from engine.proposing.answers import AnswerError
from engine.proposing.briefing import Briefing
from engine.proposing.model import ModelClient, destination
from engine.proposing.prices import cost_usd, reserve_usd
from engine.proposing.proposer import ProposalFailed, ProposerUnavailable
from engine.proposing.replies import Reply
from engine.proposing.tokens import estimate_tokens
from engine.records import CallFailure, Usage
from engine.settings import RunSettings
from engine.store.ledger import CallOrder, Ledger, OverBudget

T = TypeVar("T")

WRITE_EVERY_S = 0.3
"""How often what is being written is kept, so that a person can read along."""

PATIENCE = 5
"""So many proposals in a row may fail because the server cannot be had; then the run waits for a person."""

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

    @property
    def of_the_server(self) -> bool:
        """Whether the server could not be had, whatever was asked."""
        return self.failure in _SERVER


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that has ended: its number, what it brought, what it cost, and how long its prompt was in tokens."""

    call: int
    reply: Reply
    cost_usd: float | None
    prompt_tokens: int


class Requests:
    """Sends prompts to one model, and keeps how it fares with that.

    Args:
        client: the model.
        ledger: where requests are written down.
        run: the run's number, for what people are told.
        settings: the run's settings.
    """

    def __init__(self, client: ModelClient, ledger: Ledger, run: int, settings: RunSettings) -> None:
        self._client = client
        self._ledger = ledger
        self._run = run
        self._llm = settings.llm
        self._max_cost = settings.max_cost
        self._prompt_tokens = self._llm.prompt_tokens
        self._output_tokens = self._llm.max_output_tokens
        self._answered = False
        self._failed_in_a_row = 0

    async def send(
        self, candidate: int, attempt: int, name: str, briefing: Briefing, feedback: str, **more: str
    ) -> Sent:
        """Sends the prompt of a template and waits for its end; the request stays open in the ledger until `settle`.

        Raises:
            CallFailed: the money does not cover it.
        """
        prompt, skills = briefing.prompt(name, self._prompt_tokens, feedback=feedback, **more)
        reserve = reserve_usd(self._llm.price, prompt.tokens, self._output_tokens)
        order = CallOrder(
            candidate, self._llm.model, destination(self._llm), prompt.template, prompt.version, attempt,
            prompt.messages, skills, prompt.dropped, reserve,
        )  # fmt: skip
        try:
            call = self._ledger.begin(order, self._max_cost)
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
            return Sent(call, replace(reply, usage=usage), reserve, prompt.tokens)
        return Sent(call, reply, cost_usd(self._llm.price, reply.usage), prompt.tokens)

    def settle(self, sent: Sent) -> None:
        """Ends a request in the ledger."""
        reply = sent.reply
        assert reply.usage is not None
        self._ledger.settle(sent.call, reply.text, reply.usage, sent.cost_usd, reply.failure, reply.detail)
        if reply.failure in _SERVER:
            self._failed_in_a_row += 1
        else:
            self._answered, self._failed_in_a_row = True, 0

    def shrink(self, sent: Sent) -> None:
        """Asks for less from now on: what fits the model's context if it said how long that is, else half."""
        limit = sent.reply.context_limit
        if limit is not None:
            self._output_tokens = max(_LEAST_OUTPUT, min(self._output_tokens, limit // 2))
            room = limit - self._output_tokens
        else:
            self._output_tokens = max(_LEAST_OUTPUT, self._output_tokens // 2)
            room = sent.prompt_tokens // 2
        self._prompt_tokens = max(_LEAST_PROMPT, min(self._prompt_tokens, room))

    def failed(self, failure: CallFailure, detail: str) -> ProposalFailed:
        """The failure of a proposal; once too many fail for the server's sake, that of the proposer."""
        hopeless = failure in _HOPELESS and not self._answered
        if hopeless or self._failed_in_a_row >= PATIENCE:
            often = "" if hopeless else f", {self._failed_in_a_row} times in a row"
            return ProposerUnavailable(
                f"the model cannot be had{often}: {detail}; see to it, then go on with: kernelgrove resume {self._run}"
            )
        return CallFailed(failure, detail)


class Conversation:
    """The requests for one candidate; `repeats_left` of them may be repeated."""

    def __init__(self, requests: Requests, candidate: int) -> None:
        self._requests = requests
        self._candidate = candidate
        self.repeats_left = 1

    async def ask(
        self, name: str, briefing: Briefing, read: Callable[[str], T], *, insist: bool = True, **more: str
    ) -> tuple[str, T]:
        """Sends a prompt and reads its answer; returns both the answer and what was read from it.

        An answer that is of no use is asked for again only where the caller must `insist` on one.

        Raises:
            ProposalFailed: nothing usable came of it, the one repetition included.
        """
        feedback, attempt = "", 1
        while True:
            sent = await self._requests.send(self._candidate, attempt, name, briefing, feedback, **more)
            reply, result = _read(sent.reply, read)
            self._requests.settle(replace(sent, reply=reply))
            if reply.failure is None:
                assert result is not None
                return reply.text, result[0]
            if not self.repeats_left or not _worth_repeating(reply, insist):
                raise self._requests.failed(reply.failure, reply.detail)
            self.repeats_left -= 1
            attempt += 1
            if reply.failure is CallFailure.CONTEXT_OVERFLOW:
                self._requests.shrink(sent)
            feedback = reply.detail if reply.failure in _TOLD else ""


def _worth_repeating(reply: Reply, insist: bool) -> bool:
    if not insist and reply.failure in _TOLD | {CallFailure.EMPTY}:
        return False
    return reply.failure in _REPEATED or (reply.begun and reply.failure in _REPEATED_WITHIN)


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
