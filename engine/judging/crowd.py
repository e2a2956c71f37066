"""Who is judged at the same time: most beside others, some alone."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Place:
    """One candidate's place; `crowded` becomes true when another one has a place at the same time."""

    alone: bool
    crowded: bool = False


class Crowd:
    """Gives places in the order in which they are asked for; whoever wants to be alone waits until all others left."""

    def __init__(self) -> None:
        self._inside: list[Place] = []
        self._waiting: deque[tuple[Place, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def place(self, alone: bool = False) -> AsyncIterator[Place]:
        """Holds a place inside the block."""
        place, turn = Place(alone), asyncio.get_running_loop().create_future()
        self._waiting.append((place, turn))
        self._admit()
        try:
            await turn
            yield place
        finally:
            if place in self._inside:
                self._inside.remove(place)
            else:
                self._waiting.remove((place, turn))
            self._admit()

    def _admit(self) -> None:
        while self._waiting:
            place, turn = self._waiting[0]
            if self._inside and (place.alone or self._inside[0].alone):
                return
            self._waiting.popleft()
            self._inside.append(place)
            for other in self._inside:
                other.crowded = other.crowded or len(self._inside) > 1
            if not turn.done():
                turn.set_result(None)
