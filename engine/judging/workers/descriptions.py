"""What an answer says of its outputs, held against the reference's before any value is looked at.

Structure, shapes, dtypes and memory. The contestant wrote it all: what its own code never writes is forged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from engine.judging.wire import Message
from engine.judging.workers.answerer import Fault, forged
from engine.judging.workers.faults import one_line
from engine.judging.workers.traits import Traits
from engine.judging.workers.trials import Question
from engine.judging.workers.values import describe_structure, dtype_name, same_structure


def check_description(question: Question, answer: Message) -> str:
    """Says what is remarkable about the memory of the outputs, in one line; empty where nothing is.

    Raises:
        Fault: structure, shape, dtype or kind of an output are not the reference's.
    """
    got, want = answer.get("form"), question.answer_form
    if not _agree(got, want):
        words = describe_structure(got), describe_structure(want)
        raise Fault("incorrect", one_line(f"the candidate returns {words[0]} where the reference returns {words[1]}"))
    check_kinds(answer.get("tensors"), question.truth.own)
    return _check_traits(question, answer.get("traits"))


def check_kinds(described: Any, expected: Sequence[torch.Tensor]) -> None:
    """Raises Fault where an output's shape or dtype is not the reference's."""
    if not isinstance(described, list) or len(described) != len(expected):
        raise forged()
    for index, (kind, own) in enumerate(zip(described, expected, strict=True)):
        if not (isinstance(kind, list) and len(kind) == 2 and isinstance(kind[0], list)):
            raise forged()
        shape, dtype = kind
        name = _name(index, len(expected))
        if shape != list(own.shape):
            raise Fault("incorrect", one_line(f"{name} has shape {shape} where the reference has {list(own.shape)}"))
        if dtype != dtype_name(own.dtype):
            want = dtype_name(own.dtype)
            raise Fault("incorrect", one_line(f"{name} has dtype {dtype} where the reference has {want}"))


def _name(index: int, count: int) -> str:
    return f"output {index}" if count > 1 else "the output"


def _agree(form: Any, expected: Any) -> bool:
    try:
        return same_structure(form, expected)
    except (ValueError, TypeError, IndexError, RecursionError) as error:
        raise forged() from error


def _check_traits(question: Question, fields: Any) -> str:
    if not isinstance(fields, list) or len(fields) != len(question.traits):
        raise forged()
    try:
        traits = list(map(Traits.from_json, fields))
    except ValueError as error:
        raise forged() from error
    remark = ""
    for index, (mine, theirs) in enumerate(zip(traits, question.traits, strict=True)):
        name = _name(index, len(traits))
        if mine.kind:
            raise Fault("incorrect", one_line(f"{name} is of type {mine.kind}, not a plain tensor"))
        if mine.overlapping and not theirs.overlapping:
            raise Fault("incorrect", f"{name} is an expanded view: its elements have no memory of their own")
        if mine.inside is not None and theirs.inside is None:
            remark = remark or f"{name} lies in the memory of input {mine.inside}"
    return remark
