"""Answers as models give them: the module, the change and the idea in them, or by name why there is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.proposing.answers import (
    AnswerError,
    read_change,
    read_idea,
    read_module,
    read_suggestions,
    without_thoughts,
)
from engine.records import CallFailure

MODULE = '"""Rows at once."""\n\n\nclass ModelNew:\n    pass\n'
ENTRY = "ModelNew"


@pytest.mark.parametrize(
    "answer",
    [
        f"Here it is:\n```python\n{MODULE}```\nEnjoy.",
        f"```\n{MODULE}```",
        f"~~~py\n{MODULE}~~~",
        f"  ```python\n{MODULE}  ```",
        f"````python\n{MODULE}````",
        f"```python\n{MODULE}",
        MODULE,
        f"<think>```python\nclass ModelNew: wrong\n```</think>\n```python\n{MODULE}```",
        f"```python\nprint('how to use it')\n```\n```python\n{MODULE}```",
        f"```python\n{MODULE}```\nOnce more:\n```python\n{MODULE}```",
        f"```python\n{MODULE}```".replace("\n", "\r\n"),
    ],
)
def test_the_module_is_found(answer: str) -> None:
    assert read_module(answer, ENTRY) == MODULE


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        ("I would use larger tiles.", CallFailure.NO_CODE),
        ("", CallFailure.NO_CODE),
        ("```python\n```", CallFailure.NO_CODE),
        ("```python\nclass Model", CallFailure.NO_CODE),
        ("<think>It never ends", CallFailure.NO_CODE),
        ("```python\nclass Model:\n    pass\n```", CallFailure.NO_ENTRY_POINT),
        ("```python\n    class ModelNew:\n        pass\n```", CallFailure.NO_ENTRY_POINT),
        (f"```python\n{MODULE}```\n```python\n{MODULE}x = 1\n```", CallFailure.TWO_CLASSES),
        (f"```python\n{MODULE}{MODULE}```", CallFailure.TWO_CLASSES),
        (f"```python\nclass A:\n    pass\nclass A:\n    pass\n{MODULE}```", CallFailure.TWO_CLASSES),
        (f"```python\n{MODULE}class ModelNew(:\n```", CallFailure.TWO_CLASSES),
    ],
)
def test_what_is_wrong_with_an_answer_has_a_name(answer: str, failure: CallFailure) -> None:
    with pytest.raises(AnswerError) as refused:
        read_module(answer, ENTRY)
    assert refused.value.failure is failure, refused.value


def test_a_module_that_is_not_valid_python_is_left_to_the_judge() -> None:
    broken = "class ModelNew:\n    def forward(self:\n"
    assert read_module(f"```python\n{broken}```", ENTRY) == broken


def test_a_function_can_be_the_entry_point() -> None:
    source = "def fused_norm(x):\n    return x\n"
    assert read_module(f"```python\n{source}```", "fused_norm") == source
    with pytest.raises(AnswerError) as refused:
        read_module(f"```python\n{source}{source}```", "fused_norm")
    assert refused.value.failure is CallFailure.TWO_CLASSES


def test_a_change_is_made_of_edits_or_of_a_whole_module() -> None:
    edits = "IDEA: x\n<<<<<<< SEARCH\n    pass\n=======\n    warps = 8\n>>>>>>> REPLACE\n"
    expected = MODULE.replace("pass", "warps = 8")
    assert read_change(edits, MODULE, ENTRY) == expected
    assert read_change(f"```python\n{expected}```", MODULE, ENTRY) == expected


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        ("Use 8 warps.", CallFailure.NO_CODE),
        (f"```python\n{MODULE}```", CallFailure.NO_CHANGE),
        ("<<<<<<< SEARCH\nabsent entirely\n=======\nb\n>>>>>>> REPLACE", CallFailure.EDIT_NOT_FOUND),
        ("<<<<<<< SEARCH\nclass ModelNew:\n=======\nclass Other:\n>>>>>>> REPLACE", CallFailure.NO_ENTRY_POINT),
        (
            "<<<<<<< SEARCH\n    pass\n=======\n    pass\nclass ModelNew:\n    x = 1\n>>>>>>> REPLACE",
            CallFailure.TWO_CLASSES,
        ),
    ],
)
def test_what_is_wrong_with_a_change_has_a_name(answer: str, failure: CallFailure) -> None:
    with pytest.raises(AnswerError) as refused:
        read_change(answer, MODULE, ENTRY)
    assert refused.value.failure is failure, refused.value


@pytest.mark.parametrize(
    ("answer", "idea"),
    [
        ("IDEA: split rows. \n", "split rows"),
        ("**Idea:** split  rows", "split rows"),
        ("<think>IDEA: no</think>\nidea: yes", "yes"),
        ("no line of that kind", "Rows at once"),
        ("IDEA: " + "long " * 60, "long " * 23 + "lo..."),
    ],
)
def test_the_idea_is_the_line_that_names_it_else_the_docstring(answer: str, idea: str) -> None:
    assert read_idea(answer, MODULE, "something") == idea


def test_without_either_the_idea_is_the_usual_one() -> None:
    assert read_idea("", "def broken(:", "a change of 3") == "a change of 3"


def test_suggestions_are_the_items_of_a_list() -> None:
    answer = "Look:\n1. Larger tiles.\n   They halve the traffic.\n2) Fewer warps\n- a third\n* a fourth\n"
    assert read_suggestions(answer) == ["Larger tiles.\n   They halve the traffic.", "Fewer warps", "a third"]
    assert read_suggestions("Use larger tiles.\n\nFewer warps.") == ["Use larger tiles.", "Fewer warps."]
    with pytest.raises(AnswerError):
        read_suggestions("<think>Hmm.</think>")


@given(st.text(max_size=400))
def test_reading_fails_by_name_only(answer: str) -> None:
    try:
        assert read_module(answer, ENTRY)
        assert read_change(answer, MODULE, ENTRY)
    except AnswerError as error:
        assert str(error)
    without_thoughts(answer)
    read_idea(answer, answer, "x")
