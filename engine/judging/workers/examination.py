"""One candidate's examination: the questions the judge asks a contestant, and what follows from the answers.

It runs in a thread of the judge. The contestant is untrusted: answers are bounded, checked for
shape, and compared with expected values that never leave the judge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from engine.judging.second_opinion import THREADS
from engine.judging.settings import JudgeSettings
from engine.judging.wire import Message
from engine.judging.workers import at_large, honesty, numerics
from engine.judging.workers.answerer import Answerer, Fault, forged
from engine.judging.workers.descriptions import check_description
from engine.judging.workers.exchange import MARGIN, Arena
from engine.judging.workers.faults import one_line
from engine.judging.workers.large_form import LargeForm
from engine.judging.workers.numerics import Truth
from engine.judging.workers.reference import Reference
from engine.judging.workers.trials import AFTER, TRIALS, Question, Trial

Report = Callable[[Message], None]


class Arenas(Protocol):
    """Makes shared memory for copies of tensors, with margins around each where they are asked for."""

    def __call__(self, tensors: Sequence[torch.Tensor], margin: int = 0) -> Arena:
        """Bytes of each `margin` are kept free around every tensor where there is a GPU."""
        ...


@dataclass(slots=True)
class Findings:
    """What has been found out so far; becomes the judge's last message about the candidate."""

    stage: str = "load"
    distance: numerics.Distance = field(default_factory=numerics.Distance)
    tier: str = "exact"
    noise: float = 0.0
    compared: bool = False
    labels: set[str] = field(default_factory=set)
    checks: list[dict[str, Any]] = field(default_factory=list)
    kernels: list[dict[str, Any]] = field(default_factory=list)
    measurement: dict[str, Any] | None = None
    fingerprint: str | None = None
    speedup: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> Message:
        """The findings as plain JSON; numerics is None where nothing was compared."""
        found = self.distance
        errors = {
            "tier": self.tier,
            "relative_error": _finite(found.relative),
            "max_error": _finite(found.absolute),
            "reference_noise": self.noise,
            "official_gate": found.official,
            "paper_gate": found.paper,
        }
        return {
            "stage": self.stage,
            "numerics": errors if self.compared else None,
            "labels": sorted(self.labels),
            "checks": self.checks,
            "kernels": self.kernels,
            "measurement": self.measurement,
            "speedup": self.speedup,
        }


def _finite(value: float) -> float:
    """JSON has no infinity; the largest double stands for it."""
    return value if value < 1e308 else 1e308


class Examination:
    """Drives one contestant from load to correct; timing is the business of `clock`."""

    def __init__(
        self,
        answerer: Answerer,
        case: int,
        reference: Reference,
        large: LargeForm | None,
        settings: JudgeSettings,
        gate: numerics.Gate,
        arenas: Arenas,
        report: Report,
        interpreted: bool = True,
    ) -> None:
        """One case of one candidate.

        Args:
            answerer: the contestant.
            case: the case's place in the task.
            reference: the form of the case that the contestant answers for.
            large: the form that is modelled; None where nothing is.
            settings: the run's settings.
            gate: decides what is right in this case.
            arenas: makes shared memory for the tensors given; whoever made it takes it back.
            report: tells the engine of progress.
            interpreted: whether kernels run in Triton's interpreter.
        """
        self.reference = reference
        self.interpreted = interpreted
        self.findings = Findings()
        self.case = case
        self._large = large
        self._answerer = answerer
        self._settings = settings
        self.gate = gate
        self.arenas = arenas
        self.report = report
        self._weights = "initial"
        self._unmatched = False
        self._calls = 0
        self._inputs: Arena | None = None
        self.outputs: Arena | None = None

    def enter(self, stage: str) -> None:
        """Names the stage that begins, for the screen and for the verdict."""
        self.findings.stage = stage
        self.report({"event": "stage", "stage": stage})

    # the stages

    def run(self, load: Message | None) -> None:
        """Load, compile, correct and honest, and the run at the large form where times are modelled.

        Args:
            load: makes the contestant import the candidate first; once, whatever the number of cases.

        Raises:
            Fault, Gone: the candidate does not get through.
        """
        try:
            self._ask_everything(load)
        except Fault as fault:
            if self._large is not None and "OutOfBounds" in fault.reason:
                at_large.look_outside(self, self._large, fault)
            raise

    def _ask_everything(self, load: Message | None) -> None:
        self.enter("load")
        if load is not None:
            self._answerer.ask(load)
        first = self.question(TRIALS[0])
        self._build(first)
        self.enter("compile")
        answer = self.call(first, conduct="run")
        self._note_launches(answer)
        self.enter("correct")
        self.check(first, answer)
        for trial in self.reference.trials()[1:]:
            if trial.weights != "initial" and self._unmatched:
                # Weights that live nowhere in the candidate cannot be changed from here.
                continue
            question = self.reference.question(trial)
            if question is not None:
                self._try(question)
        if self._weights != "initial":
            # Back to the weights that timed calls are checked with; the first answer must come again.
            self._try(first)
        self.enter("honest")
        honesty.repeat(self)
        if self.interpreted:
            # On a GPU these come last, since they may end the contestant's use of it.
            honesty.doubt(self)
            honesty.resize(self)
            honesty.tire(self)
        if self._large is not None:
            self.enter("time")
            at_large.sample(self, self._large)
        if self.interpreted:
            self.ask_afterwards()
        if self.findings.tier != "exact":
            self.findings.labels.add("reduced_precision")
        if self.gate.tolerance is not None:
            atol, rtol = self.gate.tolerance
            detail = f"judged by the case's own atol {atol:g} and rtol {rtol:g} in place of the precision tiers"
            self.findings.checks.append({"name": "tolerance", "passed": True, "detail": detail})

    def ask_afterwards(self) -> None:
        """One more question, when the candidate may believe that all has been asked."""
        self.enter("after")
        question = self.question(AFTER)
        self.check(question, self.call(question))

    def note_compiled(self, answer: Message) -> None:
        """Keeps what a call on a GPU tells of its compiled kernels: those of a call that tunes nothing any more."""
        if self.interpreted:
            return
        launches, fingerprint = answer.get("launches"), answer.get("fingerprint")
        if isinstance(launches, list) and launches:
            self.findings.kernels = launches
        if fingerprint is not None and not (isinstance(fingerprint, str) and len(fingerprint) == 64):
            raise forged()
        self.findings.fingerprint = fingerprint

    def look_again(self, load: Message | None, tuned: Sequence[Message]) -> None:
        """The short way of a fresh process that confirms a time: load, compile, and one right answer.

        Args:
            load: as for `run`.
            tuned: what autotuning chose before, which is taken over.

        Raises:
            Fault, Gone: the candidate does not get through this time.
        """
        self.enter("load")
        if load is not None:
            self._answerer.ask(load)
        first = self.question(TRIALS[0])
        self._build(first, tuned)
        self.enter("compile")
        answer = self.call(first)
        self.enter("correct")
        self.check(first, answer)

    def question(self, trial: Trial) -> Question:
        """The question of a trial without variation, which always applies."""
        question = self.reference.question(trial)
        if question is None:
            raise AssertionError("a trial without variation always applies")
        return question

    def _build(self, question: Question, tuned: Sequence[Message] = ()) -> None:
        names, state = self.reference.state()
        constants = self.reference.init_constants
        self._inputs = self.arenas(question.tensors, margin=MARGIN)
        weights, constant = self.arenas(state), self.arenas(constants)
        weights.write(state)
        constant.write(constants)
        answer = self._answerer.ask(
            {
                "op": "build",
                "init": self.reference.init_form,
                "input_form": question.form,
                "names": names,
                "seed": self.reference.weight_seed,
                "dtype": self._settings.dtype,
                "tier": "exact",
                "optimise": None,
                "tuned": list(tuned),
            },
            [self._inputs, weights, constant],
        )
        unmatched = answer.get("unmatched")
        if not isinstance(unmatched, list):
            raise forged()
        self._unmatched = bool(unmatched)
        detail = f"{len(names) - len(unmatched)} of {len(names)} weights found by name or by value"
        self.findings.checks.append({"name": "weights", "passed": not unmatched, "detail": detail})
        hidden = [name for name in map(str, unmatched) if name in names and not self.reference.shows(name)]
        if hidden:
            detail = f"{hidden[0]} is nowhere in the candidate, and so small that its answers do not show it"
            self.note("hidden weights", detail, "frozen_weights")

    def call(
        self,
        question: Question,
        conduct: str | None = None,
        keep: bool = False,
        filling: str | None = None,
        at_most_s: float | None = None,
    ) -> Message:
        """Lets the candidate answer a question, with the weights that go with it.

        Args:
            question: what the inputs hold.
            conduct: what becomes of the launches (`launches.recording`); None leaves them alone.
            keep: whether the outputs of the call before this one are kept for `former`.
            filling: what memory without contents holds (`conditions.Allocations`); one or the other by default.
            at_most_s: how long the call may take; None for as long as the candidate has.
        """
        assert self._inputs is not None
        self._inputs.write(question.tensors)
        names: list[str] = []
        arenas: list[Arena] = []
        if question.trial.weights != self._weights:
            self._weights = question.trial.weights
            names, state = self.reference.state(self._weights)
            arenas.append(self.arenas(state))
            arenas[0].write(state)
        if self.outputs is not None:
            self.outputs.poison()
        self._calls += 1
        message = {
            "op": "run",
            "conduct": conduct,
            "names": names,
            "filling": filling or ("nan", "huge")[self._calls % 2],
            "training": question.trial.training,
            "keep": keep,
            "at_most_s": at_most_s,
        }
        answer = self._answerer.ask(message, arenas)
        threads = answer.get("threads")
        if isinstance(threads, int) and threads > 0:
            self.note(THREADS, f"{threads} threads still run after a call", "review")
        return answer

    def ask(self, message: Message, arenas: Sequence[Arena] = ()) -> Message:
        """Any other question; see `Answerer.ask`."""
        return self._answerer.ask(message, arenas)

    def note(self, name: str, detail: str, label: str) -> None:
        """Writes down, once, that a check gave the candidate a label."""
        if not any(check["name"] == name and not check["passed"] for check in self.findings.checks):
            self.findings.checks.append({"name": name, "passed": False, "detail": one_line(detail)})
        self.findings.labels.add(label)

    def check(self, question: Question, answer: Message) -> list[torch.Tensor]:
        """Compares an answer with the truth, merges the distance into the findings, and returns the outputs.

        Raises:
            Fault: the answer is wrong, or not the candidate's to give.
        """
        outputs = self._collect(question, answer)
        self._check_inputs(question)
        self._compare(question, outputs)
        return outputs

    def right(self, question: Question, answer: Message) -> bool:
        """Whether an answer is right, without any consequence."""
        before = (self.findings.distance, self.findings.tier)
        try:
            self.check(question, answer)
        except Fault:
            return False
        finally:
            self.findings.distance, self.findings.tier = before
        return True

    def check_timed(self, question: Question, changes: list[torch.Tensor]) -> None:
        """Compares the outputs of a timed call, which lie in the arena, and changed inputs with the truth."""
        assert self.outputs is not None
        self._compare(question, self.outputs.read())
        self._compare(question, changes, question.changes)

    def _compare(self, question: Question, outputs: list[torch.Tensor], truth: Truth | None = None) -> None:
        """Merges the distance from the truth, the question's unless another is given, into the findings."""
        truth = truth or question.truth
        found, tier = self.gate.judge(outputs, truth, question.noise)
        findings = self.findings
        findings.compared = True
        findings.noise = max(findings.noise, question.noise)
        findings.distance = numerics.merge(findings.distance, found)
        findings.tier = max(findings.tier, tier, key=numerics.TIERS.index)
        accepted = self._settings.accepted_tiers if self.gate.tolerance is None else numerics.TIERS[:-1]
        if tier not in accepted:
            raise self._wrong(question, found, tier)

    def _wrong(self, question: Question, found: numerics.Distance, tier: str) -> Fault:
        if tier == "none":
            problem = found.problem or f"relative error {found.relative:.2g}, largest error {found.absolute:.2g}"
            return Fault("incorrect", f"wrong values for {question.trial.name}: {problem}")
        reason = (
            f"the outputs have {tier} precision (relative error {found.relative:.2g}), "
            f"which --numerics {self._settings.numerics} does not accept"
        )
        return Fault("incorrect", reason, labels=["reduced_precision"])

    def _collect(self, question: Question, answer: Message) -> list[torch.Tensor]:
        """Private copies of the outputs, after what the answer says of them has been found right."""
        remark = check_description(question, answer)
        if remark:
            self.note("own memory", remark, "aliased_output")
        if self.outputs is None:
            expected = question.truth.own
            self.outputs = self.arenas(expected)
            self.outputs.poison()
            self._answerer.ask({"op": "outputs"}, [self.outputs])
        return self.outputs.read()

    def _check_inputs(self, question: Question) -> None:
        assert self._inputs is not None
        inputs = self._inputs.read()
        for index, (now, before) in enumerate(zip(inputs, question.tensors, strict=True)):
            if index not in question.mutated and not _same_bytes(now, before):
                raise Fault(
                    "incorrect", f"the candidate changes input {index} in place, which the task does not declare"
                )
        if self._inputs.overrun():
            raise Fault("runtime_error", "the candidate writes into memory around its inputs that it was not given")
        self._compare(question, [inputs[index] for index in question.mutated], question.changes)

    def _try(self, question: Question) -> None:
        if question.trial.weights == "initial":
            self.check(question, self.call(question))
            return
        # Weights folded into others at construction are a fact to know, not an error.
        before = (self.findings.distance, self.findings.tier)
        try:
            self.check(question, self.call(question))
        except Fault as fault:
            if fault.verdict != "incorrect":
                raise
            self.findings.distance, self.findings.tier = before
            self.findings.labels.add("frozen_weights")
            self.findings.checks.append({"name": "changed weights", "passed": False, "detail": fault.reason})

    def _note_launches(self, answer: Message) -> None:
        launches = answer.get("launches")
        self.findings.kernels = launches if isinstance(launches, list) else []
        if not self.findings.kernels:
            self.findings.labels.add("no_triton")


def _same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    if torch.equal(one, other):
        return True
    # NaN differs from itself; its bytes do not.
    return torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))
