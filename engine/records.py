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
    REGRESSION = "regression"
    REVIEW = "review"


INELIGIBLE_LABELS = frozenset(
    {Label.NO_TRITON, Label.FALLBACK, Label.FROZEN_WEIGHTS, Label.UNSTABLE, Label.REGRESSION, Label.REVIEW}
)
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
    HINT = "hint"
    FORCE = "force"
    RETEST = "retest"
    ANSWER = "answer"


class CommandState(StrEnum):
    """The answer to a command; a queued one can still be retracted."""

    QUEUED = "queued"
    DONE = "done"
    REFUSED = "refused"
    RETRACTED = "retracted"


class CallState(StrEnum):
    """Where a request to a model stands; `interrupted` means that nobody waited for its end."""

    OPEN = "open"
    ANSWERED = "answered"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class CallFailure(StrEnum):
    """Why a request to a model brought nothing usable."""

    RATE_LIMITED = "rate_limited"
    NO_QUOTA = "no_quota"
    SERVER_ERROR = "server_error"
    TIMEOUT = "timeout"
    DEADLINE = "deadline"
    UNREACHABLE = "unreachable"
    DROPPED = "dropped"
    NO_ACCESS = "no_access"
    NOT_FOUND = "not_found"
    BAD_REQUEST = "bad_request"
    CONTEXT_OVERFLOW = "context_overflow"
    MALFORMED = "malformed"
    WRONG_CONTENT_TYPE = "wrong_content_type"
    EMPTY = "empty"
    REFUSED = "refused"
    CUT_OFF = "cut_off"
    NO_CODE = "no_code"
    NO_ENTRY_POINT = "no_entry_point"
    TWO_CLASSES = "two_classes"
    EDIT_NOT_FOUND = "edit_not_found"
    EDIT_AMBIGUOUS = "edit_ambiguous"
    EDIT_MALFORMED = "edit_malformed"
    NO_CHANGE = "no_change"
    KNOWN = "known"
    OUT_OF_MONEY = "out_of_money"


class Soundness(StrEnum):
    """What the audit says of a task, from the gravest down; speedups on a task that is not sound prove little."""

    DEGENERATE = "degenerate"
    INSENSITIVE = "insensitive"
    STOCHASTIC = "stochastic"
    ILL_CONDITIONED = "ill_conditioned"
    SOUND = "sound"


AUDIT_RULES = 1
"""Counts how audits judge; what was found under other rules is found again."""


@dataclass(frozen=True, slots=True)
class Audit:
    """Whether a task can tell right from wrong, with findings in plain words."""

    verdict: Soundness
    findings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The audit as it travels, is stored and is printed."""
        return {"verdict": str(self.verdict), "findings": list(self.findings)}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Audit:
        """The audit in a message or in the store."""
        return cls(Soundness(fields["verdict"]), tuple(fields["findings"]))


def soundness_line(audit: Audit) -> str:
    """What an audit found, with its gravest finding, as one line for people; empty for a sound task."""
    if audit.verdict is Soundness.SOUND:
        return ""
    words = str(audit.verdict).replace("_", " ")
    return f"the task is {words}, so that speedups on it prove little: {audit.findings[0]}"


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
class BaselineKernel:
    """A person's own kernel that candidates are compared with; `name` is what its speedup is called."""

    name: str
    source: str


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
    """Verdict and times of one case; baselines by name in microseconds.

    `bound_us` is the speed of light at the candidate's precision, and `bound_by` what it comes from: `memory` or
    `compute`.
    """

    name: str
    weight: float
    verdict: Verdict
    measurement: Measurement | None = None
    baselines: Mapping[str, float] = field(default_factory=dict)
    bound_us: float | None = None
    peak_bytes: int | None = None
    bound_by: str = ""


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
    """Everything the judge found out about one candidate.

    `speedup` is against each baseline by name, `speedup_ci95` its 95% interval where it was measured, and `standing`
    the word for it: `faster`, `same` or `slower`.
    `stage_seconds` says where `seconds` went; `waiting` is time in which the device was another's.
    """

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
    stage_seconds: Mapping[str, float] = field(default_factory=dict)
    speedup_ci95: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    standing: Mapping[str, str] = field(default_factory=dict)

    @property
    def bound_by(self) -> str:
        """What the bound comes from in all cases: `memory`, `compute`, or both words; empty where it is unknown."""
        return " and ".join(sorted({case.bound_by for case in self.cases if case.bound_by}))

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

    @property
    def audit(self) -> Audit | None:
        """What the audit said of the task; None until it is open."""
        found = self.facts.get("audit")
        return Audit.from_json(found) if found else None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One node of the tree, numbered from 1 within its run; `parent` None means the root.

    `novelty` is how far a structural step is from what the pool held, from 0 (the same) to 1.
    """

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
    novelty: float | None = None
    pruned: bool = False
    pinned: bool = False
    retest: bool = False
    created_at: float = 0.0
    changed_at: float = 0.0

    @property
    def uses_budget(self) -> bool:
        """Whether it counts against the run's budget: what is judged or failed does, and what is open will.

        People's own kernels are free, and so is what the machine could not judge.
        """
        if self.proposer is ProposerKind.HUMAN or self.verdict is Verdict.INFRASTRUCTURE_ERROR:
            return False
        return self.state not in (CandidateState.REJECTED, CandidateState.DUPLICATE, CandidateState.ABANDONED)


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


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of one request to a model.

    `output` includes `reasoning`; `input` includes `cached` and `cache_written`. `reported` is False where the
    server did not say, and the figures are estimates.
    """

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cached: int = 0
    cache_written: int = 0
    reported: bool = True


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One request to a model: for which candidate, by which prompt, and what it brought and cost.

    `template` and `version` name the prompt's template, `skills` the rules in it as name and revision, `dropped` what
    was left out to fit. Money is in US dollars, None where the model's price is not known.
    """

    id: int
    run: int
    candidate: int
    state: CallState
    model: str
    destination: str
    template: str
    version: int
    attempt: int
    usage: Usage
    reserved_usd: float | None
    cost_usd: float | None
    failure: CallFailure | None
    detail: str
    skills: tuple[tuple[str, int], ...]
    dropped: tuple[str, ...]
    started_at: float
    ended_at: float | None


@dataclass(frozen=True, slots=True)
class Spending:
    """What a run has asked of models. Money in US dollars: `usd` is spent, `reserved_usd` is held for open requests.

    `unpriced` counts the requests whose price is not known, `failures` those that brought nothing usable, by cause.
    """

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_reasoning: int = 0
    usd: float = 0.0
    reserved_usd: float = 0.0
    unpriced: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
