"""What Triton's interpreter adds to a verdict that was reached on a GPU.

A GPU shows neither an access outside a tensor that does no harm, nor a race that happens to end well. The
interpreter, which every machine has, sees both at the task's small form. Only what is certain counts: whatever it
cannot run, or finds wrong at sizes that nobody asked for, is never held against a candidate.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from engine.judging.facts import MachineError
from engine.judging.settings import JudgeSettings
from engine.records import Check, Evaluation, Label, Task, Verdict
from engine.tasks.catalogue import TaskError

OUTSIDE = "bounds at the large sizes"
"""The check that fails where programs leave their tensors at the large sizes too."""

_ORDER = ("RaceFound", "programs run in another order")
"""What the judge says of answers that depend on the order of programs."""

LIGHT, THREADS = "speed of light", "threads"
"""The checks whose failure asks for review."""

_TAKEN = frozenset((Label.NONDETERMINISTIC, Label.ALGEBRAIC_COLLAPSE))
"""Labels that hold on a GPU as well; others depend on the small sizes."""


class Interpreter(Protocol):
    """An evaluator that judges in the interpreter."""

    async def evaluate(self, source: str) -> Evaluation:
        """Judges one candidate."""
        ...


def small_task(task: Task) -> Task | None:
    """The cases of a task that the interpreter can run; None where there is none."""
    cases = tuple(case for case in task.cases if case.small_overrides)
    return replace(task, cases=cases) if cases else None


def settings_for(settings: JudgeSettings) -> JudgeSettings:
    """How the interpreter judges: as the GPU does, without any time."""
    return replace(settings, device="cpu", modelled=False)


async def asked(interpreter: Interpreter, source: str) -> Evaluation | None:
    """The interpreter's evaluation; None where it cannot judge the task at all."""
    try:
        return await interpreter.evaluate(source)
    except (TaskError, MachineError):
        return None


def joined(evaluation: Evaluation, opinion: Evaluation | None) -> Evaluation:
    """A GPU's evaluation of a correct candidate with what the interpreter is certain of."""
    if opinion is None or not evaluation.correct:
        return evaluation
    labels = {*evaluation.labels, *(label for label in opinion.labels if label in _TAKEN)}
    said = f"{opinion.verdict} at the small sizes" + (f": {opinion.reason}" if opinion.reason else "")
    verdict = evaluation.verdict
    if opinion.verdict is Verdict.RUNTIME_ERROR and "OutOfBounds" in opinion.reason:
        outside = any(check.name == OUTSIDE and not check.passed for check in opinion.checks)
        if outside:
            verdict = Verdict.RUNTIME_ERROR
        elif Label.SHAPE_SPECIALISED in opinion.labels:
            labels.add(Label.SHAPE_SPECIALISED)
    elif opinion.verdict is Verdict.INCORRECT and any(words in opinion.reason for words in _ORDER):
        verdict = Verdict.INCORRECT
    if Label.ALGEBRAIC_COLLAPSE in labels and _only_light(evaluation):
        # The bound is that of the reference's own form.
        labels.discard(Label.REVIEW)
    held = verdict is not evaluation.verdict
    joint = replace(
        evaluation,
        labels=tuple(sorted(labels)),
        checks=(*evaluation.checks, Check("second opinion of the interpreter", not held, said)),
    )
    return _refused(joint, verdict, opinion) if held else joint


def _only_light(evaluation: Evaluation) -> bool:
    """Whether nothing but its time asks for a person to look."""
    return {check.name for check in evaluation.checks if not check.passed} & {LIGHT, THREADS} == {LIGHT}


def _refused(evaluation: Evaluation, verdict: Verdict, opinion: Evaluation) -> Evaluation:
    return replace(
        evaluation,
        verdict=verdict,
        stage="honest",
        reason=f"in the interpreter: {opinion.reason}",
        cases=tuple(replace(case, verdict=verdict, measurement=None) for case in evaluation.cases),
        time_us=None,
        speedup={},
        speedup_ci95={},
        standing={},
        bound_fraction=None,
        log="\n".join(part for part in (evaluation.log, opinion.log) if part),
    )
