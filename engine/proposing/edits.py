"""Edits as search and replace blocks: found in an answer, and carried out on a text.

    <<<<<<< SEARCH
    lines as they stand
    =======
    lines to stand there instead
    >>>>>>> REPLACE

What is searched must stand in the text once. Differences that mean nothing are forgiven, the smallest first: blanks at
the ends of lines, empty lines around the block, an indentation that differs by the same amount throughout.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from engine.records import CallFailure

_SEARCH = re.compile(r"^\s*<{5,9}\s*(SEARCH|ORIGINAL)?\s*$", re.IGNORECASE)
_DIVIDER = re.compile(r"^\s*={5,9}\s*$")
_REPLACE = re.compile(r"^\s*>{5,9}\s*(REPLACE|UPDATED)?\s*$", re.IGNORECASE)
_QUOTED_LINES = 12
_LIKE = 0.4


class EditError(ValueError):
    """The edits cannot be carried out; the message is one sentence, with the nearest text where there is one."""

    def __init__(self, failure: CallFailure, message: str) -> None:
        super().__init__(message)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class Edit:
    """Lines to find and the lines to put in their place."""

    search: tuple[str, ...]
    replace: tuple[str, ...]


def has_edits(answer: str) -> bool:
    """Whether an answer holds anything that looks like an edit."""
    return any(_SEARCH.match(line) for line in answer.splitlines())


def read_edits(answer: str) -> list[Edit]:
    """The edits of an answer, in their order.

    Raises:
        EditError: a block is not closed, has no divider, or searches for nothing.
    """
    edits: list[Edit] = []
    search: list[str] | None = None
    replace: list[str] | None = None
    for line in answer.replace("\r\n", "\n").split("\n"):
        if search is None:
            if _SEARCH.match(line):
                search = []
        elif replace is None:
            if _DIVIDER.match(line):
                replace = []
            elif _SEARCH.match(line) or _REPLACE.match(line):
                raise EditError(CallFailure.EDIT_MALFORMED, f"edit {len(edits) + 1} has no line of ======= in it")
            else:
                search.append(line)
        elif _REPLACE.match(line):
            if not any(each.strip() for each in search):
                raise EditError(CallFailure.EDIT_MALFORMED, f"edit {len(edits) + 1} searches for nothing")
            edits.append(Edit(tuple(search), tuple(replace)))
            search = replace = None
        elif _SEARCH.match(line):
            raise EditError(CallFailure.EDIT_MALFORMED, f"edit {len(edits) + 1} is not closed by >>>>>>> REPLACE")
        else:
            replace.append(line)
    if search is not None:
        raise EditError(CallFailure.EDIT_MALFORMED, f"edit {len(edits) + 1} is not closed by >>>>>>> REPLACE")
    return edits


def carry_out(source: str, edits: Sequence[Edit]) -> str:
    """The text after all edits, each of which sees what the ones before it made.

    Raises:
        EditError: an edit matches nothing, or several places, or nothing is changed in the end.
    """
    lines = source.split("\n")
    for number, edit in enumerate(edits, 1):
        lines = _carry_out_one(lines, edit, f"edit {number}" if len(edits) > 1 else "the edit")
    changed = "\n".join(lines)
    if changed == source:
        raise EditError(CallFailure.NO_CHANGE, "the edits leave the text as it is")
    return changed


def _carry_out_one(lines: list[str], edit: Edit, name: str) -> list[str]:
    search, replace = list(edit.search), list(edit.replace)
    stripped, replaced = _without_empty_ends(search), _without_empty_ends(replace)
    for wanted, new, same in (
        (search, replace, str.__eq__),
        (search, replace, _same_but_for_trailing_blanks),
        (stripped, replaced, _same_but_for_trailing_blanks),
    ):
        places = _places(lines, wanted, same)
        if places:
            start = _only(places, name)
            return [*lines[:start], *new, *lines[start + len(wanted) :]]
    shifted = [(start, shift) for start, shift in _shifted_places(lines, stripped) if _fits(replaced, shift)]
    if shifted:
        start = _only([start for start, _ in shifted], name)
        new = [_shift(line, dict(shifted)[start]) for line in replaced]
        return [*lines[:start], *new, *lines[start + len(stripped) :]]
    if len(stripped) == 1 and len(replaced) <= 1:
        found = _within_lines(lines, stripped[0].strip())
        if found:
            start = _only(found, name)
            part = stripped[0].strip()
            new_line = lines[start].replace(part, replaced[0].strip() if replaced else "")
            return [*lines[:start], new_line, *lines[start + 1 :]]
    raise EditError(
        CallFailure.EDIT_NOT_FOUND, f"{name} searches for lines that are not there; {_nearest(lines, stripped)}"
    )


def _only(places: Sequence[int], name: str) -> int:
    if len(places) > 1:
        where = ", ".join(str(place + 1) for place in places[:6])
        raise EditError(
            CallFailure.EDIT_AMBIGUOUS, f"{name} matches {len(places)} places (lines {where}); search for more lines"
        )
    return places[0]


def _places(lines: Sequence[str], wanted: Sequence[str], same: Callable[[str, str], bool]) -> list[int]:
    """Where a run of lines stands, overlaps left out."""
    places: list[int] = []
    for start in range(len(lines) - len(wanted) + 1):
        if places and start < places[-1] + len(wanted):
            continue
        if all(same(lines[start + offset], line) for offset, line in enumerate(wanted)):
            places.append(start)
    return places


def _same_but_for_trailing_blanks(one: str, other: str) -> bool:
    return one.rstrip() == other.rstrip()


def _without_empty_ends(lines: Sequence[str]) -> list[str]:
    kept = list(lines)
    while kept and not kept[0].strip():
        del kept[0]
    while kept and not kept[-1].strip():
        del kept[-1]
    return kept


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _shifted_places(lines: Sequence[str], wanted: Sequence[str]) -> list[tuple[int, int]]:
    """Where a run of lines stands with every line indented by the same amount more or less, and by how much."""
    found = []
    for start in range(len(lines) - len(wanted) + 1):
        shifts = set()
        for offset, line in enumerate(wanted):
            there = lines[start + offset]
            if there.strip() != line.strip():
                break
            if line.strip():
                shifts.add(_indent(there) - _indent(line))
        else:
            if len(shifts) == 1:
                found.append((start, shifts.pop()))
    return found


def _fits(lines: Sequence[str], shift: int) -> bool:
    """Whether every line can be moved so far to the left."""
    return all(_indent(line) + shift >= 0 for line in lines if line.strip())


def _shift(line: str, shift: int) -> str:
    if not line.strip():
        return line
    return " " * shift + line if shift > 0 else line[-shift:]


def _within_lines(lines: Sequence[str], part: str) -> list[int]:
    """The lines that hold a part, once for each time."""
    return [index for index, line in enumerate(lines) for _ in range(line.count(part))]


def _nearest(lines: Sequence[str], wanted: Sequence[str]) -> str:
    """The part of the text that is most like the lines, quoted with its place."""
    best, start = 0.0, 0
    sought = "\n".join(line.strip() for line in wanted)
    matcher = SequenceMatcher(None, b=sought, autojunk=False)
    for index in range(max(1, len(lines) - len(wanted) + 1)):
        matcher.set_seq1("\n".join(line.strip() for line in lines[index : index + len(wanted)]))
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and matcher.ratio() > best:
            best, start = matcher.ratio(), index
        # A part of a line is like that line although the line says much more.
        shared = 0.8 * matcher.find_longest_match().size / len(sought) if len(wanted) == 1 else 0.0
        if shared > best:
            best, start = shared, index
    if best < _LIKE:
        return f"nothing there is like: {sought.splitlines()[0][:100]!r}"
    quoted = "\n".join(lines[start : start + min(len(wanted), _QUOTED_LINES)])
    return f"the nearest are from line {start + 1} on:\n{quoted}"
