"""What happened to a run, as a frozen union named in the past tense.

An event is written in the same transaction as the state change it tells of, so a reader that follows
the events by id misses nothing and sees nothing that was rolled back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class RunChanged:
    """The run entered a state."""

    kind: ClassVar[str] = "run_changed"
    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class EngineStarted:
    """An engine took the run's lease."""

    kind: ClassVar[str] = "engine_started"
    pid: int
    host: str
    epoch: int


@dataclass(frozen=True, slots=True)
class TaskOpened:
    """The judge accepted the task; baselines are in microseconds."""

    kind: ClassVar[str] = "task_opened"
    device: str
    measurement: str
    baselines: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class CandidateAdded:
    """A node entered the tree."""

    kind: ClassVar[str] = "candidate_added"
    candidate: int
    parent: int | None
    step: str
    proposer: str
    state: str


@dataclass(frozen=True, slots=True)
class CandidateMoved:
    """A candidate changed its state."""

    kind: ClassVar[str] = "candidate_moved"
    candidate: int
    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CandidateEvaluated:
    """The judge gave its verdict."""

    kind: ClassVar[str] = "candidate_evaluated"
    candidate: int
    verdict: str
    reason: str
    time_us: float | None = None
    speedup: float | None = None


@dataclass(frozen=True, slots=True)
class DeviceAwaited:
    """Timing a candidate waits for somebody or something; `what` is empty when it goes on."""

    kind: ClassVar[str] = "device_awaited"
    candidate: int
    what: str


@dataclass(frozen=True, slots=True)
class BestChanged:
    """A candidate became the fastest eligible one, or none is left (`candidate` is None)."""

    kind: ClassVar[str] = "best_changed"
    candidate: int | None
    time_us: float | None = None
    speedup: float | None = None


@dataclass(frozen=True, slots=True)
class CandidateFlagged:
    """A person set or cleared a flag on a candidate; for pruning `subtree` counts the nodes concerned."""

    kind: ClassVar[str] = "candidate_flagged"
    candidate: int
    flag: str
    value: bool
    subtree: int = 1


@dataclass(frozen=True, slots=True)
class StepExhausted:
    """The proposer has nothing more to offer for a parent and step."""

    kind: ClassVar[str] = "step_exhausted"
    parent: int | None
    step: str
    reason: str


@dataclass(frozen=True, slots=True)
class Stalled:
    """Many candidates were judged without a new best."""

    kind: ClassVar[str] = "stalled"
    judged: int


@dataclass(frozen=True, slots=True)
class CommandQueued:
    """A person asked for something."""

    kind: ClassVar[str] = "command_queued"
    command: int
    asked: str
    candidate: int | None = None


@dataclass(frozen=True, slots=True)
class CommandAnswered:
    """The engine did, or refused, what was asked."""

    kind: ClassVar[str] = "command_answered"
    command: int
    asked: str
    state: str
    answer: str
    candidate: int | None = None


@dataclass(frozen=True, slots=True)
class SkillChanged:
    """A rule was added or edited; it belongs to no run."""

    kind: ClassVar[str] = "skill_changed"
    skill: int
    name: str
    revision: int
    change: str


@dataclass(frozen=True, slots=True)
class Noted:
    """A line for the run's log."""

    kind: ClassVar[str] = "noted"
    text: str
    candidate: int | None = None


Event = (
    RunChanged
    | EngineStarted
    | TaskOpened
    | CandidateAdded
    | CandidateMoved
    | CandidateEvaluated
    | DeviceAwaited
    | BestChanged
    | CandidateFlagged
    | StepExhausted
    | Stalled
    | CommandQueued
    | CommandAnswered
    | SkillChanged
    | Noted
)

_KINDS: dict[str, type[Event]] = {
    event.kind: event
    for event in (
        RunChanged,
        EngineStarted,
        TaskOpened,
        CandidateAdded,
        CandidateMoved,
        CandidateEvaluated,
        DeviceAwaited,
        BestChanged,
        CandidateFlagged,
        StepExhausted,
        Stalled,
        CommandQueued,
        CommandAnswered,
        SkillChanged,
        Noted,
    )
}


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event as the store holds it: `id` grows with each, `at` is in Unix seconds, `run` None concerns all."""

    id: int
    run: int | None
    at: float
    event: Event


def to_json(event: Event) -> str:
    """Writes an event's fields as one JSON object, without its kind."""
    return json.dumps(asdict(event), separators=(",", ":"))


def from_json(kind: str, body: str) -> Event | None:
    """Reads an event back; None for a kind that a newer version wrote. Unknown fields are ignored."""
    event_type = _KINDS.get(kind)
    if event_type is None:
        return None
    known = {field.name for field in fields(event_type)}
    values: dict[str, Any] = {name: value for name, value in json.loads(body).items() if name in known}
    return event_type(**values)


def candidate_of(event: Event) -> int | None:
    """The number of the candidate that an event concerns, if it concerns one."""
    return getattr(event, "candidate", None)
