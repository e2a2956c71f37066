"""The proposer that asks people, or another program: prompts wait in a queue until each is answered.

The prompt of a candidate is kept like that of a model. Its answer is a command, so that it is not lost when the
engine is, and it may come in any order: `kernelgrove answer RUN CANDIDATE FILE`.
"""

from __future__ import annotations

import asyncio

from engine.proposing.answers import AnswerError, read_change, read_idea, read_module
from engine.proposing.findings import Findings
from engine.proposing.proposer import ProposalFailed, ProposalRequest, Proposed
from engine.proposing.tokens import estimate_tokens
from engine.records import ProposerKind, Step, Usage
from engine.store.ledger import CallOrder, Ledger

LOOK_S = 0.2
DESTINATION = "a person"


class ManualProposer:
    """Writes down a prompt for each candidate and waits for what a person answers."""

    kind = ProposerKind.MANUAL

    def __init__(self, findings: Findings, ledger: Ledger) -> None:
        self._findings = findings
        self._ledger = ledger

    def exhausted(self, parent: int | None, step: Step) -> str | None:
        """A person can always be asked."""
        return None

    async def propose(self, request: ProposalRequest) -> Proposed:
        """Waits for the answer.

        Raises:
            ProposalFailed: the answer cannot be used after all.
        """
        call = self._ask(request)
        while (answer := self._findings.reader.answer(self._findings.run, request.number)) is None:
            await asyncio.sleep(LOOK_S)
        self._ledger.settle(call, answer, Usage(output=estimate_tokens(answer), reported=False), 0.0)
        try:
            source = self.read(request.parent if request.step is Step.LOCAL else None, answer)
        except AnswerError as error:
            raise ProposalFailed(str(error)) from error
        return Proposed(source, read_idea(answer, source, f"by hand, for candidate {request.number}"))

    def _ask(self, request: ProposalRequest) -> int:
        """Keeps the prompt where `show --prompt` and the screens find it."""
        if request.step is Step.LOCAL and request.parent is not None:
            name, (briefing, _) = "tuner", self._findings.local(request)
        else:
            name, briefing = "structural", self._findings.structural(request)
        prompt, skills = briefing.prompt(name, self._findings.subject.settings.llm.prompt_tokens)
        order = CallOrder(
            request.number, str(self.kind), DESTINATION, prompt.template, prompt.version, 1, prompt.messages, skills,
            prompt.dropped, 0.0,
        )  # fmt: skip
        return self._ledger.begin(order)

    def read(self, parent: int | None, answer: str) -> str:
        """The kernel in an answer: a module, or, where there is a parent to change, edits of its text.

        Raises:
            AnswerError: there is none.
        """
        entry = self._findings.subject.entry
        if parent is None:
            return read_module(answer, entry)
        return read_change(answer, self._findings.shown(parent).source, entry)
