"""Makes the proposer that a run's settings name, with what it needs: a lowering process, a model, or both."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from engine.lowering.client import LoweredTask, LoweringClient, LoweringError
from engine.proposing.briefing import Subject
from engine.proposing.compiler import CompilerProposer
from engine.proposing.findings import Findings
from engine.proposing.llm import LlmProposer
from engine.proposing.manual import ManualProposer
from engine.proposing.mixed import MixedProposer
from engine.proposing.model import ModelClient, key_for
from engine.proposing.prices import priced
from engine.proposing.proposer import Proposer
from engine.records import Task
from engine.settings import Price, RunSettings, SettingsError, parse_run_settings
from engine.store.reader import Reader
from engine.store.run_store import RunStore
from engine.tasks.catalogue import entry_point


def proposer_name(settings: RunSettings) -> str:
    """Who proposes: `auto` is `mixed` where a model is named, else `compiler`.

    Raises:
        SettingsError: a model is to propose and none is named.
    """
    if settings.proposer in ("llm", "mixed") and not settings.llm.model:
        raise SettingsError(
            f"the proposer {settings.proposer} needs a model: name it with --model, or under [run.llm] as "
            "model = ... in kernelgrove.toml"
        )
    if settings.proposer == "auto":
        return "mixed" if settings.llm.model else "compiler"
    return settings.proposer


def asks_a_model(settings: RunSettings) -> bool:
    """Whether a language model proposes.

    Raises:
        SettingsError: one is to propose and none is named.
    """
    return proposer_name(settings) in ("llm", "mixed")


def ready_settings(
    settings: RunSettings, prices: Mapping[str, Price], environment: Mapping[str, str] = os.environ
) -> RunSettings:
    """The settings of a run about to start, with the model's address and price as they will be used.

    Args:
        settings: as typed and configured.
        prices: a person's own prices by model.
        environment: where the key is, and the address if no setting names one.

    Raises:
        SettingsError: a model is to propose and is not named, has no key, or cannot be held to --max-cost.
    """
    if not asks_a_model(settings):
        return settings
    llm = settings.llm
    if not llm.base_url and not llm.azure_endpoint and environment.get("OPENAI_BASE_URL"):
        values = {**settings.model_dump(), "llm": {**llm.model_dump(), "base_url": environment["OPENAI_BASE_URL"]}}
        llm = parse_run_settings(values).llm
    key_for(llm, environment)
    return settings.model_copy(update={"llm": priced(llm, prices, settings.max_cost)})


class ProposerParts:
    """What the proposer of a run is made of; started at once, so that it gets ready beside the judge.

    Raises:
        SettingsError: the settings name no model, or there is no key for it.
    """

    def __init__(self, store: RunStore, task: Task, settings: RunSettings) -> None:
        self._store = store
        self._task = task
        self._settings = settings
        self._name = proposer_name(settings)
        self._model = ModelClient(settings.llm) if asks_a_model(settings) else None
        self._stack = AsyncExitStack()
        self._lowering: LoweringClient | None = None
        self._lowered: asyncio.Task[LoweredTask] | None = None

    async def __aenter__(self) -> Self:
        if self._model is not None:
            self._stack.push_async_callback(self._model.close)
        if self._name in ("compiler", "mixed"):
            self._lowering = await self._stack.enter_async_context(LoweringClient())
            self._lowered = asyncio.create_task(
                self._lowering.open(self._task, self._settings.arch, self._settings.dtype)
            )
            self._stack.callback(self._lowered.cancel)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def proposer(self) -> Proposer:
        """The proposer, once the task is lowered; the judge's facts must be in the store.

        Raises:
            LoweringError: the lowering process cannot do its work, and nobody else proposes.
            SkillError: the rules that the settings name cannot be read.
        """
        if self._name == "manual":
            return ManualProposer(Findings(self._reader(), self._store.run_id, self._subject()), self._store.ledger)
        if self._model is None:
            return await self._compiler()
        llm = self._llm(self._model)
        if self._lowering is None:
            return llm
        try:
            compiler = await self._compiler()
        except LoweringError as error:
            self._store.note(f"the model begins without the compiler's first kernel: {error}")
            return llm
        return MixedProposer(compiler, llm, seeded=bool(self._store.candidates()))

    async def _compiler(self) -> CompilerProposer:
        assert self._lowering is not None and self._lowered is not None
        lowered = await self._lowered
        for reason in lowered.reasons:
            self._store.note(f"lowering: {reason}")
        return CompilerProposer(
            self._lowering, lowered, self._store.recipes(), self._store.tried(), self._settings.numerics
        )

    def _llm(self, model: ModelClient) -> LlmProposer:
        return LlmProposer(model, self._reader(), self._store.ledger, self._store.run_id, self._subject())

    def _subject(self) -> Subject:
        run = self._store.run()
        return Subject(self._task, entry_point(self._task), run.device, run.facts, self._settings)

    def _reader(self) -> Reader:
        reader = Reader(self._store.path)
        self._stack.callback(reader.close)
        return reader
