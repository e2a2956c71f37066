"""The compiler proposer over a scripted lowering: everything once, also after an interruption."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

import pytest

from engine.lowering.client import LoweredTask, LoweringClient, LoweringError, StructureSummary
from engine.lowering.structure import Parameters
from engine.proposing.compiler import CompilerProposer
from engine.proposing.proposer import ProposalFailed, ProposalRequest, Proposed
from engine.records import Step

STRUCTURES = tuple(
    StructureSummary(name, f"Idea of {name}.", {"BLOCK": 2}, {"BLOCK": (1, 2, 4)})
    for name in ("inductor/default", "rows/one_pass", "rows/looped", "product/tf32")
)

Recipe = Mapping[str, Any]


class ScriptedLowering(LoweringClient):
    """Writes a module's text from its parameters, and refuses or holds back what it was told to."""

    def __init__(self, refused: Iterable[str] = ()) -> None:
        super().__init__()
        self.refused = set(refused)
        self.held = asyncio.Event()
        self.held.set()

    async def render(self, structure: str, parameters: Parameters) -> str:
        await self.held.wait()
        if structure in self.refused:
            raise LoweringError(f"{structure} cannot be written")
        return json.dumps([structure, dict(parameters)])


def make(
    lowering: LoweringClient,
    recipes: Mapping[int, Recipe] | None = None,
    tried: Iterable[Recipe] = (),
    numerics: str = "reduced",
    structures: tuple[StructureSummary, ...] = STRUCTURES,
) -> CompilerProposer:
    return CompilerProposer(lowering, LoweredTask(structures, ("no loops",)), recipes or {}, tried, numerics)


def request(number: int, parent: int | None = None, seed: int = 0) -> ProposalRequest:
    step = Step.STRUCTURAL if parent is None else Step.LOCAL
    return ProposalRequest(number, parent, step, Random(f"{seed}:{number}"))


async def everything(proposer: CompilerProposer, start: int = 1) -> list[Proposed]:
    """All structures, then all variations of all that was made, as far as the proposer goes."""
    made: list[Proposed] = []
    while proposer.exhausted(None, Step.STRUCTURAL) is None:
        made.append(await proposer.propose(request(start + len(made))))
    parent = 1
    while parent < start + len(made):
        while proposer.exhausted(parent, Step.LOCAL) is None:
            made.append(await proposer.propose(request(start + len(made), parent)))
        parent += 1
    return made


async def test_each_structure_and_each_variation_is_offered_once_and_then_it_is_exhausted() -> None:
    proposer = make(ScriptedLowering())
    made = await everything(proposer)
    assert len({proposed.source for proposed in made}) == len(made) == 4 * 3
    assert proposer.exhausted(None, Step.STRUCTURAL) == "all 4 structures have been offered"
    assert proposer.exhausted(1, Step.LOCAL) == "every variation of 1 has been offered"


def recipe(proposed: Proposed) -> Recipe:
    assert proposed.recipe is not None
    return proposed.recipe


async def test_the_search_starts_where_the_compiler_ends() -> None:
    for seed in range(5):
        first = await make(ScriptedLowering()).propose(request(1, seed=seed))
        assert recipe(first)["structure"] == "inductor/default"


async def test_a_strict_run_is_not_offered_rounded_products() -> None:
    made = await everything(make(ScriptedLowering(), numerics="strict"))
    assert not [proposed for proposed in made if "tf32" in proposed.source]


@pytest.mark.parametrize("cut", range(1, 8))
async def test_after_an_interruption_it_offers_what_it_would_have_offered(cut: int) -> None:
    def lowering() -> ScriptedLowering:
        return ScriptedLowering(refused=["rows/looped"])

    whole = await everything(make(lowering()))
    before = whole[:cut]
    resumed = make(
        lowering(),
        {number: recipe(proposed) for number, proposed in enumerate(before, 1)},
        [tried for proposed in before for tried in proposed.tried],
    )
    assert [p.source for p in await everything(resumed, cut + 1)] == [p.source for p in whole[cut:]]


async def test_what_could_not_be_written_is_named_and_not_tried_again() -> None:
    lowering = ScriptedLowering(refused=[structure.name for structure in STRUCTURES])
    proposer = make(lowering)
    with pytest.raises(ProposalFailed, match="cannot be written") as failed:
        await proposer.propose(request(1))
    assert {tried["structure"] for tried in failed.value.tried} == {structure.name for structure in STRUCTURES}
    resumed = make(lowering, tried=failed.value.tried)
    assert resumed.exhausted(None, Step.STRUCTURAL) == "all 4 structures have been offered"


async def test_a_request_that_was_cut_takes_nothing_away() -> None:
    lowering = ScriptedLowering()
    lowering.held.clear()
    proposer = make(lowering, structures=STRUCTURES[:1])
    asked = asyncio.create_task(proposer.propose(request(1)))
    await asyncio.sleep(0)
    assert proposer.exhausted(None, Step.STRUCTURAL) is not None
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    lowering.held.set()
    assert recipe(await proposer.propose(request(2)))["structure"] == "inductor/default"


def test_a_task_that_cannot_be_lowered_says_why() -> None:
    proposer = make(LoweringClient(), structures=())
    assert proposer.exhausted(None, Step.STRUCTURAL) == "the task could not be lowered: no loops"
    assert proposer.exhausted(7, Step.LOCAL) == "candidate 7 was not made from a recipe that could be varied"
