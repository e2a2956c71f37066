"""The nouns of the project as immutable records, shared by engine, store, screens and commands.

Only the standard library is imported here: the judge's processes, which may run in a foreign
environment, use the same records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class RunState(StrEnum):
    """Where a run stands; `created` means that no engine has taken it yet."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def ended(self) -> bool:
        """Whether no engine will work on the run again unless a person resumes it."""
        return self in (RunState.DONE, RunState.STOPPED, RunState.FAILED)


class CandidateState(StrEnum):
    """The life of a candidate, from the request to its verdict."""

    PROPOSING = "proposing"
    AWAITING_APPROVAL = "awaiting_approval"
    QUEUED = "queued"
    EVALUATING = "evaluating"
    EVALUATED = "evaluated"
    REJECTED = "rejected"
    FAILED = "failed"
    DUPLICATE = "duplicate"
    ABANDONED = "abandoned"

    @property
    def final(self) -> bool:
        """Whether the candidate will not move again (a restored subtree may reopen `abandoned`)."""
        return self in (
            CandidateState.EVALUATED,
            CandidateState.REJECTED,
            CandidateState.FAILED,
            CandidateState.DUPLICATE,
            CandidateState.ABANDONED,
        )


class Step(StrEnum):
    """How large a change is asked for (AdaExplore, section on Explore)."""

    STRUCTURAL = "structural"
    LOCAL = "local"


class ProposerKind(StrEnum):
    """Who made a candidate."""

    COMPILER = "compiler"
    LLM = "llm"
    HUMAN = "human"
    MANUAL = "manual"


class Verdict(StrEnum):
    """What the judge says of a candidate."""

    CORRECT = "correct"
    INCORRECT = "incorrect"
    COMPILE_ERROR = "compile_error"
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    TAMPERED = "tampered"
    INFRASTRUCTURE_ERROR = "infrastructure_error"


class Label(StrEnum):
    """A fact beside the verdict that changes how a result is ranked or read."""

    REDUCED_PRECISION = "reduced_precision"
    FROZEN_WEIGHTS = "frozen_weights"
    NO_TRITON = "no_triton"
    FALLBACK = "fallback"
    SHAPE_SPECIALISED = "shape_specialised"
    ALIASED_OUTPUT = "aliased_output"
    ALGEBRAIC_COLLAPSE = "algebraic_collapse"
    NONDETERMINISTIC = "nondeterministic"
    UNSTABLE = "unstable"
    REVIEW = "review"


INELIGIBLE_LABELS = frozenset({Label.NO_TRITON, Label.FALLBACK, Label.FROZEN_WEIGHTS, Label.UNSTABLE, Label.REVIEW})
"""Labels that keep a correct candidate from being best unless the run allows them."""


class MeasurementKind(StrEnum):
    """`measured` on a GPU or `modelled` without one; the two are never mixed in one run."""

    MEASURED = "measured"
    MODELLED = "modelled"


class Gate(StrEnum):
    """Which proposals wait for a person before any of their code runs."""

    NONE = "none"
    STRUCTURAL = "structural"
    ALL = "all"


class CommandKind(StrEnum):
    """What a person can ask of a search."""

    APPROVE = "approve"
    REJECT = "reject"
    PRUNE = "prune"
    RESTORE = "restore"
    PIN = "pin"
    UNPIN = "unpin"
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    BUDGET = "budget"


class CommandState(StrEnum):
    """The answer to a command; a queued one can still be retracted."""

    QUEUED = "queued"
    DONE = "done"
    REFUSED = "refused"
    RETRACTED = "retracted"


@dataclass(frozen=True, slots=True)
class Case:
    """One set of shapes of a task.

    `overrides` replaces constants of the task's module; `small_overrides` does so for the form that
    the interpreter can run. Tolerances of None mean the judge's own tiers.
    """

    name: str = "default"
    weight: float = 1.0
    overrides: Mapping[str, Any] = field(default_factory=dict)
    small_overrides: Mapping[str, Any] = field(default_factory=dict)
    atol: float | None = None
    rtol: float | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """A reference function and its cases. `path` is where the source was read, for people only."""

    name: str
    family: str
    format: str
    path: str
    source: str
    cases: tuple[Case, ...] = (Case(),)


@dataclass(frozen=True, slots=True)
class Numerics:
    """How far the outputs are from the reference in float64, and which tier that earns."""

    tier: str
    relative_error: float
    max_error: float
    reference_noise: float
    official_gate: bool | None = None
    paper_gate: bool | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """One named question that the judge asked, and its answer."""

    name: str
    passed: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Time of one candidate on one case, in microseconds, with its 95% interval."""

    kind: MeasurementKind
    time_us: float
    ci95_us: tuple[float, float]
    mode: str = "launch"
    cache: str = "cold"
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Verdict and times of one case; baselines by name in microseconds."""

    name: str
    weight: float
    verdict: Verdict
    measurement: Measurement | None = None
    baselines: Mapping[str, float] = field(default_factory=dict)
    bound_us: float | None = None
    peak_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class KernelResources:
    """What the compiler says of one kernel: registers and spills per thread, shared memory per program."""

    kernel: str
    arch: str
    registers: int
    spills: int
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Everything the judge found out about one candidate."""

    verdict: Verdict
    stage: str
    reason: str
    labels: tuple[str, ...] = ()
    numerics: Numerics | None = None
    checks: tuple[Check, ...] = ()
    cases: tuple[CaseResult, ...] = ()
    time_us: float | None = None
    speedup: Mapping[str, float] = field(default_factory=dict)
    bound_fraction: float | None = None
    static: tuple[KernelResources, ...] = ()
    fingerprint: str | None = None
    device: str = ""
    toolchain: Mapping[str, str] = field(default_factory=dict)
    log: str = ""
    seconds: float = 0.0

    @property
    def correct(self) -> bool:
        """Whether every case gave the right answer."""
        return self.verdict is Verdict.CORRECT

    def eligible(self, allowed: frozenset[str] = frozenset()) -> bool:
        """Whether the candidate may become best: correct, timed, and free of disqualifying labels."""
        blocking = {str(label) for label in INELIGIBLE_LABELS} - allowed
        return self.correct and self.time_us is not None and not blocking.intersection(self.labels)


@dataclass(frozen=True, slots=True)
class Run:
    """One search on one task. Times are Unix seconds.

    `best` is the number of the best candidate; `facts` is what the judge said of task and machine.
    """

    id: int
    name: str
    task: str
    state: RunState
    settings: Mapping[str, Any]
    created_at: float
    started_at: float | None = None
    ended_at: float | None = None
    ended_by: str | None = None
    active_seconds: float = 0.0
    device: str = ""
    reason: str | None = None
    best: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def budget(self) -> int:
        """How many candidates the run may judge."""
        return int(self.settings["budget"])


@dataclass(frozen=True, slots=True)
class Candidate:
    """One node of the tree, numbered from 1 within its run; `parent` None means the root."""

    run: int
    number: int
    parent: int | None
    step: Step
    proposer: ProposerKind
    state: CandidateState
    idea: str
    depth: int
    source_hash: str | None = None
    verdict: Verdict | None = None
    reason: str | None = None
    labels: tuple[str, ...] = ()
    time_us: float | None = None
    speedup: float | None = None
    reward: float | None = None
    duplicate_of: int | None = None
    pruned: bool = False
    pinned: bool = False
    created_at: float = 0.0
    changed_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Command:
    """Something a person asked of a run, and the answer."""

    id: int
    run: int
    kind: CommandKind
    candidate: int | None
    argument: str
    state: CommandState
    answer: str
    author: str
    created_at: float
    answered_at: float | None = None
