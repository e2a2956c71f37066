"""The proposer that asks a language model.

A structural step is one request: a new kernel. A local step is two: a reviser names improvements of a kernel (left out
while nothing in its chain is correct), a tuner answers with edits.
"""

from __future__ import annotations

from engine.proposing.answers import AnswerError, read_change, read_idea, read_module, read_suggestions
from engine.proposing.briefing import Briefing, Subject
from engine.proposing.findings import Findings
from engine.proposing.model import ModelClient
from engine.proposing.proposer import ProposalRequest, Proposed
from engine.proposing.requests import CallFailed, Conversation, Requests
from engine.records import CallFailure, ProposerKind, Step
from engine.store.ledger import Ledger
from engine.store.reader import Reader

TOLERATED_REPEATS = 3
"""So many times in a row a model may offer at one place what the run has already, which costs money and no budget."""


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
        self._reader = reader
        self._findings = Findings(reader, run, subject)
        self._requests = Requests(client, ledger, run, subject.settings)
        self._run = run
        self._subject = subject

    def exhausted(self, parent: int | None, step: Step) -> str | None:
        """One sentence once the model only repeats at a place what the run has already."""
        if self._reader.repeated(self._run, parent, step, TOLERATED_REPEATS) < TOLERATED_REPEATS:
            return None
        return f"the last {TOLERATED_REPEATS} answers of {self._subject.settings.llm.model} there were known already"

    async def propose(self, request: ProposalRequest) -> Proposed:
        """Asks for a new kernel, or for a change of the parent.

        Raises:
            ProposalFailed: nothing usable came of it.
        """
        talk = Conversation(self._requests, request.number)
        if request.step is Step.LOCAL and request.parent is not None:
            return await self._change(talk, request)
        return await self._new(talk, request)

    async def _new(self, talk: Conversation, request: ProposalRequest) -> Proposed:
        entry = self._subject.entry
        briefing = self._findings.structural(request)
        answer, source = await talk.ask(
            "structural", briefing, lambda text: self._fresh(talk, read_module(text, entry))
        )
        return Proposed(source, read_idea(answer, source, "a new kernel"))

    async def _change(self, talk: Conversation, request: ProposalRequest) -> Proposed:
        briefing, chain = self._findings.local(request)
        parent = chain[-1]
        suggestions: list[str] = []
        if any(shown.correct for shown in chain):
            suggestions = await self._revise(talk, briefing)
        entry = self._subject.entry
        answer, source = await talk.ask(
            "tuner",
            briefing,
            lambda text: self._fresh(talk, read_change(text, parent.source, entry)),
            suggestions="\n".join(f"{number}. {text}" for number, text in enumerate(suggestions, 1)),
        )
        otherwise = suggestions[0] if suggestions else f"a change of {request.parent}"
        return Proposed(source, read_idea(answer, "", otherwise))

    async def _revise(self, talk: Conversation, briefing: Briefing) -> list[str]:
        """What a reviser suggests; the tuner does without it if the reviser's answer is of no use."""
        try:
            _, suggestions = await talk.ask("reviser", briefing, read_suggestions, insist=False)
        except CallFailed as failed:
            if failed.of_the_server or failed.failure is CallFailure.OUT_OF_MONEY:
                raise
            return []
        return suggestions

    def _fresh(self, talk: Conversation, source: str) -> str:
        """The text, if the run does not have it yet, or the model was told so in vain: then it is a duplicate.

        Raises:
            AnswerError: the run has it, and the model can be told.
        """
        known = self._reader.with_source(self._run, source)
        if known is not None and talk.repeats_left:
            raise AnswerError(
                CallFailure.KNOWN,
                f"this is the text of candidate {known}, which is judged already: answer with another",
            )
        return source
