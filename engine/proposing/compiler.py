"""The proposer that needs neither a model nor a GPU: lowers the reference and varies the result.

A recipe is the name of a structure and its parameters. A structural step takes a structure that was not
offered yet, a local step moves the parent's parameters by one step. The kernels themselves are written
by the lowering process; this side only chooses.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any

from engine.lowering.client import LoweredTask, LoweringClient, LoweringError
from engine.lowering.neighbours import Neighbour, neighbours
from engine.proposing.proposer import ProposalFailed, ProposalRequest, Proposed
from engine.records import ProposerKind, Step

_MAX_RENDER_TRIES = 8
_ROUNDED = "/tf32"
"""How the names of structures end whose matrix products are rounded to TF32; a strict run would refuse them all."""


class CompilerProposer:
    """Offers the structures of a lowered task and their variations, each once.

    `recipes` says how the candidates that are there already were made, `tried` what could not be written.
    """

    kind = ProposerKind.COMPILER

    def __init__(
        self,
        client: LoweringClient,
        task: LoweredTask,
        recipes: Mapping[int, Mapping[str, Any]],
        tried: Iterable[Mapping[str, Any]],
        numerics: str,
    ) -> None:
        self._client = client
        self._structures = {
            structure.name: structure
            for structure in task.structures
            if numerics != "strict" or not structure.name.endswith(_ROUNDED)
        }
        self._reasons = task.reasons
        self._recipes: dict[int, Mapping[str, Any]] = dict(recipes)
        spent = [*recipes.values(), *tried]
        self._offered = {_key(recipe["structure"], recipe["parameters"]) for recipe in spent}
        self._structures_offered = {recipe["structure"] for recipe in spent}

    def exhausted(self, parent: int | None, step: Step) -> str | None:
        """One sentence if every structure, or every variation of the parent, has been offered."""
        if step is Step.STRUCTURAL:
            if self._fresh_structures():
                return None
            if not self._structures:
                return "the task could not be lowered: " + ("; ".join(self._reasons) or "no structure fits it")
            return f"all {len(self._structures)} structures have been offered"
        if parent not in self._recipes:
            return f"candidate {parent} was not made from a recipe that could be varied"
        return None if self._fresh_neighbours(parent) else f"every variation of {parent} has been offered"

    async def propose(self, request: ProposalRequest) -> Proposed:
        """Makes the next structure, or a variation of the parent.

        Raises:
            ProposalFailed: what was tried could not be written.
        """
        failure = "nothing is left to offer"
        tried: list[Mapping[str, Any]] = []
        for _ in range(_MAX_RENDER_TRIES):
            pick = self._pick(request)
            if pick is None:
                break
            structure, parameters, idea = pick
            recipe = {"structure": structure, "parameters": dict(parameters)}
            self._offered.add(_key(structure, parameters))
            self._structures_offered.add(structure)
            try:
                source = await self._client.render(structure, parameters)
            except LoweringError as error:
                failure = str(error)
                tried.append(recipe)
                continue
            except asyncio.CancelledError:
                self._take_back(request.step, [*tried, recipe])
                raise
            self._recipes[request.number] = recipe
            return Proposed(source, idea, recipe, tuple(tried))
        raise ProposalFailed(failure, tried)

    def _take_back(self, step: Step, recipes: Iterable[Mapping[str, Any]]) -> None:
        """Forgets what a cut request took: nobody saw it, and the store knows nothing of it either."""
        for recipe in recipes:
            self._offered.discard(_key(recipe["structure"], recipe["parameters"]))
            if step is Step.STRUCTURAL:
                self._structures_offered.discard(recipe["structure"])

    def _pick(self, request: ProposalRequest) -> tuple[str, Mapping[str, Any], str] | None:
        if request.step is Step.STRUCTURAL:
            fresh = self._fresh_structures()
            if not fresh:
                return None
            # The first of all is what torch.compile would do; the search starts from there.
            name = fresh[0] if not self._structures_offered else request.random.choice(fresh)
            structure = self._structures[name]
            return name, structure.defaults, f"{name}: {structure.idea[:1].lower()}{structure.idea[1:].rstrip('.')}"
        options = self._fresh_neighbours(request.parent) if request.parent is not None else []
        if not options:
            return None
        chosen = request.random.choice(options)
        assert request.parent is not None
        return self._recipes[request.parent]["structure"], chosen.parameters, chosen.idea

    def _fresh_structures(self) -> list[str]:
        return [name for name in self._structures if name not in self._structures_offered]

    def _fresh_neighbours(self, parent: int | None) -> list[Neighbour]:
        recipe = self._recipes.get(parent or 0)
        if recipe is None or recipe["structure"] not in self._structures:
            return []
        structure = self._structures[recipe["structure"]]
        return [
            neighbour
            for neighbour in neighbours(structure, recipe["parameters"])
            if _key(structure.name, neighbour.parameters) not in self._offered
        ]


def _key(structure: str, parameters: Mapping[str, Any]) -> str:
    return json.dumps([structure, parameters], sort_keys=True)
