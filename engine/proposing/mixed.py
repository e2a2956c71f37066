"""The compiler seeds the tree, then a model takes over: the search starts where `torch.compile` ends."""

from __future__ import annotations

from engine.proposing.compiler import CompilerProposer
from engine.proposing.llm import LlmProposer
from engine.proposing.proposer import ProposalRequest, Proposed
from engine.records import ProposerKind, Step


class MixedProposer:
    """Takes the first kernel from the compiler and all others from a model.

    Args:
        compiler: asked for the first structure, if it has any.
        llm: asked for everything else.
        seeded: whether the tree holds anything already, the compiler's first kernel or a person's.
    """

    def __init__(self, compiler: CompilerProposer, llm: LlmProposer, seeded: bool) -> None:
        self._compiler = compiler
        self._llm = llm
        self._seeded = seeded

    @property
    def kind(self) -> ProposerKind:
        """The compiler at first, where it has something to offer, then the model."""
        if self._seeded or self._compiler.exhausted(None, Step.STRUCTURAL) is not None:
            return ProposerKind.LLM
        return ProposerKind.COMPILER

    def exhausted(self, parent: int | None, step: Step) -> str | None:
        """A model can always be asked again."""
        return self._llm.exhausted(parent, step)

    async def propose(self, request: ProposalRequest) -> Proposed:
        """Asks whoever was chosen for the candidate.

        Raises:
            ProposalFailed: nothing usable came of it.
        """
        self._seeded = True
        if request.proposer is ProposerKind.COMPILER and request.step is Step.STRUCTURAL:
            return await self._compiler.propose(request)
        return await self._llm.propose(request)
