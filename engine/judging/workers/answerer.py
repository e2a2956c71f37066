"""The judge's side of a process that answers calls: a contestant, or a trusted one that runs the reference.

Every answer is bounded and checked for shape here, because a candidate's code shares the process
that gives it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from engine.judging.wire import Channel, Message, WireClosed, WireError
from engine.judging.workers.exchange import Arena
from engine.judging.workers.faults import one_line
from engine.judging.workers.turns import COMPILING, TUNING

MAX_ANSWER_BYTES = 16 << 20
"""The largest answer taken."""

_KINDS = ("compile_error", "runtime_error", "out_of_memory", "incorrect", "tampered", "infrastructure_error")


class Fault(Exception):
    """The examination ends with this verdict and reason."""

    def __init__(self, verdict: str, reason: str, detail: str = "", labels: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.verdict, self.reason, self.detail, self.labels = verdict, reason, detail, tuple(labels)


class Gone(Exception):
    """The process ended; the engine knows how and why."""


def forged() -> Fault:
    """What the contestant's own code never says was written by the candidate."""
    return Fault("tampered", "the candidate wrote on the judge's private channel")


@dataclass(frozen=True, slots=True)
class Answered:
    """A timed block as the process that ran it reports it: times of single calls in microseconds."""

    times_us: list[float]
    peak_bytes: int


Turn = Callable[[], AbstractContextManager[Any]]

NO_TURNS: dict[str, Turn] = {COMPILING: nullcontext, TUNING: nullcontext}
"""Nobody else is affected by what the process does."""


class Answerer:
    """Asks one question after another over one channel.

    `turns` are entered while the process compiles or tunes (`workers.turns`), and left before it goes on.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.turns: dict[str, Turn] = dict(NO_TURNS)

    def ask(self, message: Message, arenas: Sequence[Arena] = ()) -> Message:
        """One question, with the memory it is about, and its answer.

        Raises Fault for a failure and Gone when the process ended.
        """
        # An answer that was written ahead of its question cannot know the question's number.
        nonce = secrets.token_hex(8)
        descriptors = [descriptor for arena in arenas for descriptor in arena.descriptors()]
        try:
            self._channel.send({**message, "nonce": nonce, "arenas": [arena.handle() for arena in arenas]}, descriptors)
            answer = self._answer(nonce)
        except WireClosed as error:
            raise Gone from error
        except WireError as error:
            raise forged() from error
        if answer.get("nonce") != nonce:
            raise forged()
        if isinstance(answer.get("ok"), dict):
            return dict(answer["ok"])
        failed = answer.get("failed")
        if not isinstance(failed, dict) or failed.get("kind") not in _KINDS:
            raise forged()
        raise Fault(failed["kind"], one_line(failed.get("message", "")), str(failed.get("detail", ""))[:8000])

    def _answer(self, nonce: str) -> Message:
        """The answer to a question; turns that the process takes come before it."""
        while True:
            answer, _ = self._channel.receive(max_bytes=MAX_ANSWER_BYTES)
            turn = self.turns.get(str(answer.get("event")))
            if turn is None or answer.get("nonce") != nonce:
                return answer
            with turn():
                self._channel.send({"op": "go_on"})
                answer, _ = self._channel.receive(max_bytes=MAX_ANSWER_BYTES)
            if answer.get("event") != "done" or answer.get("nonce") != nonce:
                return answer  # compiling or tuning failed
            self._channel.send({"op": "go_on"})

    def block(self, iterations: int, *, calls: bool = True, keep: int | None = None) -> Answered:
        """Has the process run one timed block; see `contestant._time` for the options."""
        answer = self.ask({"op": "time", "iterations": iterations, "calls": calls, "keep": keep})
        times, peak = answer.get("times_us"), answer.get("peak_bytes")
        if not isinstance(times, list) or len(times) != (iterations if calls else 0):
            raise forged()
        if not isinstance(peak, int) or not all(isinstance(time, float) and 0 <= time < 1e12 for time in times):
            raise forged()
        return Answered(times, peak)

    def close(self) -> None:
        """Hangs up, which ends the process."""
        self._channel.close()
