"""Whether a task can tell right from wrong: its own question, answered wrongly, and its inputs and weights moved.

Runs in the judge. What is found is a verdict, findings for people, and the smallest error of a wrong answer, which
no gate may come near.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from engine.judging.workers import numerics, variations
from engine.judging.workers.numerics import OFFICIAL_TOLERANCE, PAPER_TOLERANCE, Truth
from engine.judging.workers.reference import Reference
from engine.judging.workers.trials import AGAIN, TRIALS, Question
from engine.judging.workers.wrong_answers import trivial_answers
from engine.records import Audit, Soundness
from engine.tasks.opening import TaskProblem, load_module
from engine.tasks.scaling import scaled_sources

BUDGET_S = 60.0
"""How long one case may take; what has not been looked at by then is said to be so."""

MARGIN = 10.0
"""How many times the exact gate the smallest error of a wrong answer is in a sound task."""

_OFFSET = 1.5e-2
"""Values that differ by no more than this share of their size are an offset and little else."""

_CONSTANT = 1e-6
"""Values that differ by no more than this share of their size are one constant."""

_STILL = 1e-4
"""The share of their variation that values must change by at least for other inputs."""

_HIDDEN = 0.98
"""The share of values within the paper's tolerance from which answers count as the same there."""

_ROUNDING = 0.1
"""The reference's error at its own dtype, relative to its values, from which these are nothing but rounding."""

_MOST_WEIGHTS, _MOST_INPUTS = 24, 8

Tensors = list[torch.Tensor]


def nearest_wrong_answer(question: Question, other: Question) -> tuple[str, float]:
    """The trivial wrong answer that is nearest to the truth, and its relative error.

    The answer to `other` inputs is among them, and so is to leave inputs alone that must change.
    """
    tried: list[tuple[str, numerics.Distance]] = []
    if question.truth.own:
        for name, answer in trivial_answers(question.truth.own, question.tensors):
            tried.append((name, numerics.distance(answer, question.truth)))
        if numerics.alike(other.truth.own, question.truth.own):
            tried.append(("the answer to other inputs", numerics.distance(other.truth.own, question.truth)))
    if question.mutated:
        before = [question.tensors[index] for index in question.mutated]
        tried.append(("arguments left as they were", numerics.distance(before, question.changes)))
    errors = [(name, 1.0 if found.problem else found.relative) for name, found in tried]
    return min(errors, key=lambda item: item[1], default=("", float("inf")))


@dataclass(slots=True)
class CaseAudit:
    """What was found in one case; no verdicts mean that it is sound.

    `grave` are the findings that a verdict follows from, `notes` the others.
    """

    verdicts: set[Soundness] = field(default_factory=set)
    grave: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def find(self, verdict: Soundness, sentence: str) -> None:
        """Adds a finding, with the verdict that follows from it."""
        self.verdicts.add(verdict)
        self.grave.append(sentence)

    def note(self, sentence: str) -> None:
        """Adds a finding that is good to know."""
        self.notes.append(sentence)


def audit_case(reference: Reference, budget_s: float = BUDGET_S) -> CaseAudit:
    """Audits one case at the form that the reference has.

    Raises:
        TaskProblem: the reference fails on its own inputs.
    """
    with torch.no_grad():
        return _Auditor(reference, time.monotonic() + budget_s).run()


class _Auditor:
    def __init__(self, reference: Reference, deadline: float) -> None:
        question, other = reference.question(TRIALS[0]), reference.question(AGAIN[0])
        assert question is not None and other is not None
        self._reference = reference
        self._question, self._other = question, other
        self._deadline = deadline
        truth, changes = question.truth, question.changes
        self._truth = Truth([*truth.own, *changes.own], [*truth.exact, *changes.exact])
        self._gate = numerics.exact_gate([tensor.dtype for tensor in self._truth.own], question.noise)
        self._found = CaseAudit()

    def run(self) -> CaseAudit:
        self._answer_wrongly()
        if Soundness.DEGENERATE not in self._found.verdicts:
            self._look_at_offsets()
        self._ask_again()
        if not self._found.verdicts & {Soundness.DEGENERATE, Soundness.STOCHASTIC}:
            self._move_inputs()
        self._move_weights()
        return self._found

    def _answer_wrongly(self) -> None:
        name, error = nearest_wrong_answer(self._question, self._other)
        rounding = _uncentred_noise(self._truth)
        if rounding >= _ROUNDING:
            self._found.find(
                Soundness.DEGENERATE,
                f"its values are nothing but rounding: float32 and float64 differ by {_times(rounding)} their size",
            )
        elif error < MARGIN * self._gate:
            self._found.find(*self._too_near(name, error))
        accepted = self._accepted_elsewhere()
        if accepted:
            self._found.note(accepted)

    def _too_near(self, name: str, error: float) -> tuple[Soundness, str]:
        if self._gate > numerics.exact_gate([], 0.0):
            sentence = (
                f"rounding alone changes its values by {_percent(self._question.noise)} of their variation, and {name} "
                f"would err by {_percent(error)}"
            )
            return Soundness.ILL_CONDITIONED, sentence
        if name == "the answer to other inputs":
            return Soundness.INSENSITIVE, f"other inputs change its values by {_percent(error)} of their variation"
        right = "exactly right" if error == 0.0 else f"right to {_percent(error)}"
        return Soundness.DEGENERATE, f"a wrong answer is {right}: {name}"

    def _accepted_elsewhere(self) -> str:
        """What published gates let pass, which compare element by element without regard to an offset."""
        own = self._question.truth.own
        for tolerance in (OFFICIAL_TOLERANCE[torch.float32], 1e-2, PAPER_TOLERANCE):
            wrong = [
                name for name, answer in trivial_answers(own, self._question.tensors) if _pass(answer, own, tolerance)
            ]
            if wrong and own:
                return f"a published gate (atol = rtol = {tolerance:g}) accepts {', '.join(wrong[:4])}"
        return ""

    def _look_at_offsets(self) -> None:
        outputs = self._truth.exact
        shares = [_variation(tensor) for tensor in outputs]
        known = [share for share in shares if share is not None]
        for index, share in enumerate(shares):
            if share is None or share > _OFFSET:
                continue
            what = "its values differ" if len(outputs) == 1 else f"the values of output {index} differ"
            sentence = f"{what} from each other by {_percent(share)} of their size; the rest is an offset"
            if max(known) <= _CONSTANT:
                self._found.find(Soundness.DEGENERATE, sentence)
            elif max(known) <= _OFFSET:
                self._found.find(Soundness.INSENSITIVE, sentence)
            else:
                self._found.note(sentence)

    def _ask_again(self) -> None:
        error = self._reference.restlessness(self._question)
        if error > numerics.restless_from(self._truth.own):
            self._found.find(
                Soundness.STOCHASTIC,
                f"called again with the same inputs it gives values that differ by {_percent(error)}: it draws random "
                "numbers or keeps something from call to call, and no candidate can match it",
            )

    def _move_inputs(self) -> None:
        question = self._question
        moved = []
        still = max(_STILL, question.noise)
        for index, (name, other) in enumerate(zip(self._reference.input_names, self._other.tensors, strict=True)):
            if index >= _MOST_INPUTS or self._late("its inputs"):
                break
            if other.shape != question.tensors[index].shape or torch.equal(other, question.tensors[index]):
                continue
            tensors = [other if place == index else tensor for place, tensor in enumerate(question.tensors)]
            error = self._error_of(self._reference.model, tensors)
            moved.append(error)
            if error < still:
                change = _percent(error)
                self._found.note(f"other values of {name} change its values by {change} of their variation")
        if moved and max(moved) < still:
            change = _percent(max(moved))
            self._found.find(Soundness.INSENSITIVE, f"other inputs change its values by {change} of their variation")

    def _move_weights(self) -> None:
        if not self._reference.has_parameters or self._late("its weights"):
            return
        question = self._question
        other = self._reference.another_model()
        if all(map(torch.equal, other.parameters(), self._reference.model.parameters())):
            return
        torch.manual_seed(0)
        answer = self._reference.everything(other, question.form, question.tensors, question.mutated)
        same = min((_share_within(a, own) for a, own in zip(answer, self._truth.own, strict=True)), default=0.0)
        if same >= _HIDDEN:
            self._found.find(
                Soundness.INSENSITIVE,
                f"with other weights {_percent(same)} of its values stay within the tolerance of {PAPER_TOLERANCE:g} "
                "that published results use: what the weights do is hidden",
            )
        if self._found.verdicts & {Soundness.DEGENERATE, Soundness.STOCHASTIC}:
            return
        del other
        trying = copy.deepcopy(self._reference.model)
        for index, (name, parameter) in enumerate(trying.named_parameters()):
            if index >= _MOST_WEIGHTS or self._late("every weight"):
                break
            if not parameter.is_floating_point():
                continue
            torch.manual_seed(index)
            kept = parameter.clone()
            parameter.copy_(variations.moved(parameter, 1.0))
            error = self._error_of(trying, question.tensors)
            parameter.copy_(kept)
            if error <= self._gate:
                self._found.note(f"its weight {name} does not show in its values: a candidate may leave it out")

    def _error_of(self, model: torch.nn.Module, tensors: Tensors) -> float:
        question = self._question
        try:
            torch.manual_seed(0)
            answer = self._reference.everything(model, question.form, tensors, question.mutated)
        except (TaskProblem, torch.OutOfMemoryError):
            return float("inf")
        return _error(answer, self._truth)

    def _late(self, what: str) -> bool:
        late = time.monotonic() > self._deadline
        if late:
            self._found.note(f"the audit ran out of time before it had moved {what}")
        return late


def audit_task(
    task: Mapping[str, Any], device: str, dtype: torch.dtype | None, secret: int, *, for_search: bool = False
) -> Audit:
    """Audits every case of a task, each at its small form or, where it declares none, at a scaled one.

    Args:
        task: the task in the engine's words.
        device: where the reference runs.
        dtype: what floating inputs and weights are cast to; None keeps the task's own.
        secret: what inputs and weights are drawn from.
        for_search: whether a reference that draws random numbers is an error.

    Raises:
        TaskProblem: the task's code fails.
    """
    verdicts: set[Soundness] = set()
    grave: list[str] = []
    notes: list[str] = []
    for case in task["cases"]:
        reference = _audited_form(task["source"], case, device, dtype, secret)
        if for_search:
            reference.check()
        found = audit_case(reference)
        verdicts |= found.verdicts
        where = f"case {case['name']}: " if len(task["cases"]) > 1 else ""
        grave += [where + sentence for sentence in found.grave]
        notes += [where + sentence for sentence in found.notes]
    verdict = next((known for known in Soundness if known in verdicts), Soundness.SOUND)
    return Audit(verdict, (*grave, *notes))


def _audited_form(
    source: str, case: Mapping[str, Any], device: str, dtype: torch.dtype | None, secret: int
) -> Reference:
    if case["small_overrides"]:
        module = load_module(source, {**case["overrides"], **case["small_overrides"]}, "task")
        return Reference(module, device, dtype, secret)
    problem: TaskProblem | None = None
    for text in scaled_sources(source, case["overrides"]):
        try:
            reference = Reference(load_module(text, {}, "task"), device, dtype, secret)
            reference.question(TRIALS[0])
            return reference
        except TaskProblem as found:
            problem = found
    assert problem is not None
    raise problem


def _error(answer: Tensors, truth: Truth) -> float:
    if not numerics.alike(answer, truth.own):
        return 1.0
    found = numerics.distance(answer, truth)
    return 1.0 if found.problem else found.relative


def _uncentred_noise(truth: Truth) -> float:
    """The reference's error at its own dtype relative to the size of its values, at its largest."""
    worst = 0.0
    for own, exact in zip(truth.own, truth.exact, strict=True):
        if own.is_floating_point() and bool(torch.isfinite(exact).all()) and bool(torch.isfinite(own).all()):
            size = float(torch.linalg.vector_norm(exact.double()))
            error = float(torch.linalg.vector_norm(own.double() - exact.double()))
            worst = max(worst, error / size if size else float(error > 0.0))
    return worst


def _variation(tensor: torch.Tensor) -> float | None:
    """How much values differ from their mean, relative to their size; None where that says nothing."""
    if not tensor.is_floating_point() or tensor.numel() < 2:
        return None
    values = tensor.double()[torch.isfinite(tensor)]
    size = float(torch.linalg.vector_norm(values))
    return float(torch.linalg.vector_norm(values - values.mean())) / size if size else 0.0


def _pass(answer: Tensors, own: Tensors, tolerance: float) -> bool:
    return all(
        torch.allclose(one.to(right.dtype), right, atol=tolerance, rtol=tolerance, equal_nan=True)
        for one, right in zip(answer, own, strict=True)
    )


def _share_within(answer: torch.Tensor, own: torch.Tensor) -> float:
    """The share of values within the paper's tolerance."""
    if answer.shape != own.shape or not own.numel():
        return 0.0
    if not own.is_floating_point():
        return float((answer == own).double().mean())
    near = torch.isclose(answer.double(), own.double(), atol=PAPER_TOLERANCE, rtol=PAPER_TOLERANCE, equal_nan=True)
    return float(near.double().mean())


def _percent(share: float) -> str:
    return "less than 0.001%" if 0.0 < share < 1e-5 else f"{100.0 * share:.3g}%"


def _times(factor: float) -> str:
    return f"{factor:.2g} times"
