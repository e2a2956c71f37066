"""The honest stage: questions whose answers tell how a candidate comes by its right ones.

Each looks at what the candidate does, not at how it is written.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import torch

from engine.judging.wire import Message
from engine.judging.workers.answerer import Fault, Gone, forged
from engine.judging.workers.descriptions import check_kinds
from engine.judging.workers.exchange import MARGIN
from engine.judging.workers.trials import AGAIN, FEWER_ROWS, TRIALS, Question

if TYPE_CHECKING:
    from engine.judging.workers.examination import Examination

_REPEATS = 3
_MANY, _TIRING_S = 300, 2.0
_AT_MOST_S = 5.0
"""How long a call may take that is only made to see what happens."""


def repeat(examination: Examination) -> None:
    """Asks the same twice: programs in another order, work that is done only once, outputs that do not last.

    Raises:
        Fault: an answer depends on the order of the work or comes from memory.
    """
    one, other = map(examination.question, AGAIN)
    answer = examination.call(one, conduct="run")
    before = examination.check(one, answer)
    first = _in_another_order(examination, other)
    assert examination.outputs is not None
    if first is not None:
        examination.outputs.poison()
        examination.ask({"op": "former"})
        if not _same(examination.outputs.read(), before):
            detail = "the outputs of one call are overwritten by the next"
            examination.note("lasting outputs", detail, "aliased_output")
    again = examination.call(other, conduct="run")
    examination.note_compiled(again)
    answers = [examination.check(other, again)]
    if first is not None:
        answers.append(first)
    if not examination.interpreted:
        # Programs of a GPU run in an order that changes by itself, at the price of a call.
        answers += [examination.check(other, examination.call(other)) for _ in range(_REPEATS)]
    if not all(_same(answers[0], later) for later in answers[1:]):
        detail = "the same inputs give outputs that differ within rounding"
        examination.note("repeated", detail, "nondeterministic")
    missing = _kernels(answer) - _kernels(again)
    # What a replayed graph launches cannot be seen.
    if missing and not again.get("replays"):
        reason = f"asked the same again, the candidate does not launch {sorted(missing)[0]}: it answers from memory"
        raise Fault("incorrect", reason)


def _in_another_order(examination: Examination, question: Question) -> list[torch.Tensor] | None:
    """The outputs with the programs of each launch in reverse order, or, on a GPU, with other streams held up.

    None where a program waits for earlier ones, which is as good a reason for an order as any.
    """
    conduct = "reverse" if examination.interpreted else "late"
    words = "where programs run in another order" if examination.interpreted else "when asked once more"
    try:
        answer = examination.call(question, conduct=conduct, keep=True)
    except Fault as fault:
        if "OutOfPatience" in fault.reason:
            return None
        if "RaceFound" in fault.reason:
            raise Fault("incorrect", fault.reason, fault.detail) from fault
        raise
    try:
        return examination.check(question, answer)
    except Fault as fault:
        if fault.verdict != "incorrect":
            raise
        if answer.get("streams"):
            words = "where work on another stream is slow: the stream that it was called on does not wait for it"
        raise Fault(fault.verdict, f"{fault.reason}, {words}", fault.detail, fault.labels) from fault


def _kernels(answer: Message) -> set[str]:
    launches = answer.get("launches")
    if not isinstance(launches, list) or not all(isinstance(launch, dict) for launch in launches):
        raise forged()
    return {str(launch.get("kernel")) for launch in launches}


def _same(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(
        torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))
        for one, other in zip(some, others, strict=True)
    )


def doubt(examination: Examination) -> None:
    """Lets launches do nothing, then fail: a right answer did not come from them.

    Ends with a call whose answer is not looked at: what one call leaves behind may be what the next one needs.
    """
    if not examination.findings.kernels:
        return
    question = examination.question(TRIALS[0])
    if _answers(examination, question, "skip"):
        detail = "the answer is the same when its kernels do nothing"
        examination.note("kernels matter", detail, "no_triton")
    elif _answers(examination, question, "fail"):
        detail = "when its kernels fail, the answer comes from elsewhere"
        examination.note("no fallback", detail, "fallback")
    _answers(examination, question, "run")


def _answers(examination: Examination, question: Question, conduct: str) -> bool:
    filling = "harmless" if conduct == "skip" else None
    try:
        answer = examination.call(question, conduct=conduct, filling=filling, at_most_s=_AT_MOST_S)
    except Fault as fault:
        if fault.verdict == "tampered":
            raise
        return False
    return examination.right(question, answer)


def tire(examination: Examination) -> None:
    """Calls the candidate so often that one which is right for its first calls only is so no more.

    Without launches, which is what takes time in the interpreter; on a GPU it is timed as often.
    """
    examination.ask({"op": "tire", "calls": _MANY, "at_most_s": _TIRING_S})


def last_doubts(examination: Examination) -> None:
    """On a GPU: doubts about launches, then other sizes.

    Either may end the candidate's use of the GPU, or itself, without being its fault: nothing else is asked
    afterwards.
    """
    with suppress(Gone):
        doubt(examination)
        question = examination.question(TRIALS[0])
        if _answers(examination, question, "run"):
            resize(examination)


def resize(examination: Examination) -> None:
    """Asks for sizes that the task does not have; to fail there is a fact, not a fault."""
    question = examination.reference.question(FEWER_ROWS)
    if question is None or all(
        tensor.shape == own.shape
        for tensor, own in zip(question.tensors, examination.question(TRIALS[0]).tensors, strict=True)
    ):
        return
    inputs = examination.arenas(question.tensors, margin=MARGIN)
    outputs = examination.arenas(question.truth.own)
    inputs.write(question.tensors)
    outputs.poison()
    message: Message = {"op": "resized", "input_form": question.form, "at_most_s": _AT_MOST_S}
    try:
        answer = examination.ask(message, [inputs, outputs])
        check_kinds(answer.get("tensors"), question.truth.own)
        found, tier = examination.gate.judge(outputs.read(), question.truth, question.noise)
        if tier != "none":
            now = inputs.read()
            changed = [now[index] for index in question.mutated]
            found, tier = examination.gate.judge(changed, question.changes, question.noise)
        if tier != "none":
            return
        problem = found.problem or f"relative error {found.relative:.2g}"
    except Fault as fault:
        if fault.verdict == "tampered":
            raise
        problem = fault.reason
    examination.note("other sizes", f"with fewer rows: {problem}", "shape_specialised")
