"""Edits: found in an answer, matched as exactly as they can be, refused where they would be a guess."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.proposing.edits import Edit, EditError, carry_out, has_edits, read_edits
from engine.records import CallFailure

SOURCE = """import triton


@triton.jit
def kernel(x, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    for start in range(0, n, BLOCK):
        value = tl.load(x + start + offsets, mask=mask)
        tl.store(x + start + offsets, value * 2, mask=mask)


def launch(x):
    kernel[(1,)](x, x.numel(), BLOCK=128, num_warps=4)
    return x
"""


def edit(search: str, replace: str) -> Edit:
    return Edit(tuple(search.split("\n")), tuple(replace.split("\n")))


def changed(*edits: Edit) -> str:
    return carry_out(SOURCE, edits)


def test_edits_are_read_with_everything_around_them() -> None:
    answer = (
        "IDEA: more warps\n```\n<<<<<<< SEARCH\nBLOCK=128\n=======\nBLOCK=256\n>>>>>>> REPLACE\n```\nand\r\n"
        "<<<<<<< SEARCH\r\na\r\n\r\nb\r\n=======\r\n>>>>>>> REPLACE\r\n"
    )
    assert has_edits(answer)
    assert read_edits(answer) == [edit("BLOCK=128", "BLOCK=256"), Edit(("a", "", "b"), ())]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("<<<<<<< SEARCH\na\n=======\nb\n", "edit 1 is not closed"),
        ("<<<<<<< SEARCH\na\n>>>>>>> REPLACE", "edit 1 has no line of ======="),
        ("<<<<<<< SEARCH\na\n=======\nb\n<<<<<<< SEARCH\nc\n=======\nd\n>>>>>>> REPLACE", "edit 1 is not closed"),
        ("<<<<<<< SEARCH\n\n=======\nb\n>>>>>>> REPLACE", "edit 1 searches for nothing"),
        ("<<<<<<< SEARCH\na", "edit 1 is not closed"),
    ],
)
def test_a_block_that_is_not_whole_is_malformed(answer: str, words: str) -> None:
    with pytest.raises(EditError, match=words) as refused:
        read_edits(answer)
    assert refused.value.failure is CallFailure.EDIT_MALFORMED


def test_an_exact_match_is_replaced_and_nothing_else() -> None:
    assert changed(edit("    mask = offsets < n", "    mask = offsets < n - 1")) == SOURCE.replace("< n\n", "< n - 1\n")


def test_lines_can_be_taken_away_and_put_in() -> None:
    assert changed(Edit(("    mask = offsets < n",), ())) == SOURCE.replace("    mask = offsets < n\n", "")
    more = changed(edit("    mask = offsets < n", "    mask = offsets < n\n    other = 1"))
    assert more == SOURCE.replace("< n\n", "< n\n    other = 1\n")


def test_blanks_at_the_ends_of_lines_do_not_matter() -> None:
    assert changed(edit("    mask = offsets < n   ", "    mask = 1")) == SOURCE.replace("offsets < n\n", "1\n")


def test_empty_lines_around_the_block_do_not_matter() -> None:
    assert changed(edit("\n    mask = offsets < n\n\n", "\n    mask = 1\n")) == SOURCE.replace("offsets < n\n", "1\n")


def test_an_indentation_that_differs_throughout_is_taken_over() -> None:
    outer = changed(
        edit("value = tl.load(x + start + offsets, mask=mask)", "value = tl.load(x + start + offsets)\nif n:\n    pass")
    )
    assert "        value = tl.load(x + start + offsets)\n        if n:\n            pass\n" in outer
    inner = changed(edit("          mask = offsets < n", "          mask = 1\n            # why"))
    assert "    mask = 1\n      # why\n" in inner


def test_a_part_of_one_line_is_enough_if_it_is_the_only_one() -> None:
    assert changed(edit("num_warps=4", "num_warps=8")) == SOURCE.replace("num_warps=4", "num_warps=8")


def test_later_edits_see_what_earlier_ones_made() -> None:
    assert "num_warps=16" in changed(edit("num_warps=4", "num_warps=8"), edit("num_warps=8", "num_warps=16"))


@pytest.mark.parametrize(
    ("search", "failure", "words"),
    [
        ("mask=mask)", CallFailure.EDIT_AMBIGUOUS, r"the edit matches 2 places \(lines 9, 10\)"),
        ("x", CallFailure.EDIT_AMBIGUOUS, "places"),
        (
            "        value = tl.load(x + start, mask=mask)",
            CallFailure.EDIT_NOT_FOUND,
            r"the nearest are from line 9 on:\n        value = tl.load\(x \+ start \+ offsets, mask=mask\)",
        ),
        ("nothing of the kind, by far", CallFailure.EDIT_NOT_FOUND, "nothing there is like"),
        ("    return x\n    return y", CallFailure.EDIT_NOT_FOUND, "nearest"),
    ],
)
def test_what_matches_nothing_or_several_places_is_refused_with_the_nearest_text(
    search: str, failure: CallFailure, words: str
) -> None:
    with pytest.raises(EditError, match=words) as refused:
        changed(edit(search, "z"))
    assert refused.value.failure is failure


def test_which_of_several_edits_fails_is_said() -> None:
    with pytest.raises(EditError, match=r"^edit 2 searches"):
        changed(edit("num_warps=4", "num_warps=8"), edit("num_warps=4,", "num_warps=8"))


def test_edits_that_change_nothing_are_refused() -> None:
    with pytest.raises(EditError) as refused:
        changed(edit("num_warps=4", "num_warps=4"))
    assert refused.value.failure is CallFailure.NO_CHANGE


LINE = st.text("ab =()", min_size=0, max_size=8).map(lambda text: text.rstrip())


@st.composite
def sources(draw: st.DrawFn) -> tuple[list[str], int, int]:
    """Lines of which each that says anything is unique, and a run of them that begins and ends with such a line."""
    lines = [
        f"{line}#{number}" if line.strip() else line for number, line in enumerate(draw(st.lists(LINE, min_size=1)))
    ]
    saying = [index for index, line in enumerate(lines) if line.strip()] or [0]
    start = draw(st.sampled_from(saying))
    end = draw(st.sampled_from([index for index in saying if index >= start]))
    return lines, start, end + 1


@given(sources(), st.lists(LINE, max_size=4), st.integers(0, 3), st.integers(0, 2), st.integers(0, 6))
def test_tolerated_differences_give_what_the_exact_edit_gives(
    drawn: tuple[list[str], int, int], new: list[str], blanks: int, empty: int, indent: int
) -> None:
    lines, start, end = drawn
    if not "".join(lines[start:end]).strip():
        return
    source = "\n".join(lines)
    new = [line for line in new if line.strip()] + ["the end"]
    expected = "\n".join([*lines[:start], *new, *lines[end:]])
    assert carry_out(source, [Edit(tuple(lines[start:end]), tuple(new))]) == expected
    padded = [" " * indent + line + " " * blanks if line.strip() else line for line in lines[start:end]]
    search = ("",) * empty + tuple(padded) + ("",) * empty
    replace = ("",) * empty + tuple(" " * indent + line for line in new) + ("",) * empty
    assert carry_out(source, [Edit(search, replace)]) == expected


@given(st.text(max_size=300))
def test_no_answer_makes_reading_fail_otherwise_than_by_name(answer: str) -> None:
    try:
        edits = read_edits(answer)
        carry_out(SOURCE, edits)
    except EditError as error:
        assert str(error)
