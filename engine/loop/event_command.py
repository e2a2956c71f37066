"""Runs the person's own command when something happens that they want to hear of (the setting `on_event`).

The command gets one JSON object on its standard input. It may be slow, fail or hang: it runs beside the search,
one at a time, and is killed after a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
from collections.abc import Iterator, Sequence
from typing import Any

from engine.events import BestChanged, CandidateMoved, RecordedEvent, RunChanged, Stalled
from engine.records import CandidateState, RunState
from engine.store.run_store import RunStore

LOOK_S = 0.5
TIMEOUT_S = 30.0
"""How long one call of the command may take."""

_ENDED = tuple(state for state in RunState if state.ended)


class EventCommand:
    """Follows a run's events and runs a command line for those that matter: `new_best`, `approval`, `stall`, `end`."""

    def __init__(self, store: RunStore, command: str, timeout_s: float = TIMEOUT_S) -> None:
        self._store = store
        self._command = shlex.split(command)
        self._timeout_s = timeout_s
        self._cursor = store.last_event()
        self._stopped = asyncio.Event()

    async def follow(self) -> None:
        """Tells of what happens until `stop`, and then of what is left to tell."""
        while self._command and not self._stopped.is_set():
            await self._catch_up()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._stopped.wait()
        await self._catch_up()

    def stop(self) -> None:
        """Lets `follow` come to its end."""
        self._stopped.set()

    async def _catch_up(self) -> None:
        """Tells of everything that has happened and was not told yet."""
        events = self._store.events(self._cursor) if self._command else []
        for told in self._notable(events):
            await self._run({**told, "run": self._store.run_id, "name": self._store.run().name})
        if events:
            self._cursor = max(self._cursor, events[-1].id)

    def _notable(self, events: Sequence[RecordedEvent]) -> Iterator[dict[str, Any]]:
        """What a person wants to hear of; approvals that wait are told of together."""
        waiting: list[int] = []
        for recorded in events:
            # One that was told stays told, even if a later one is cut off.
            self._cursor = recorded.id
            match recorded.event:
                case BestChanged(candidate=int(number), time_us=time_us, speedup=speedup):
                    best = {"candidate": number, "time_us": time_us, "speedup": speedup}
                    yield {"event": "new_best", "at": recorded.at, **best}
                case CandidateMoved(candidate=number, state=CandidateState.AWAITING_APPROVAL):
                    waiting.append(number)
                case Stalled(judged=judged):
                    yield {"event": "stall", "at": recorded.at, "judged": judged}
                case RunChanged(state=state, reason=reason) if state in _ENDED:
                    run = self._store.run()
                    yield {
                        "event": "end",
                        "at": recorded.at,
                        "state": state,
                        "ended_by": run.ended_by,
                        "reason": reason,
                        "best": run.best,
                    }
        if waiting:
            yield {"event": "approval", "at": events[-1].at, "candidates": waiting}

    async def _run(self, document: dict[str, Any]) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            self._command = []
            self._store.note(f"on_event cannot be run and is left alone from now on: {error}")
            return
        try:
            async with asyncio.timeout(self._timeout_s):
                await process.communicate(json.dumps(document).encode())
        except TimeoutError:
            self._store.note(f"on_event took longer than {self._timeout_s:g} s for {document['event']} and was killed")
            return
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode:
            self._store.note(f"on_event ended with status {process.returncode} for {document['event']}")
