"""A unified diff as rows, with changed words marked; cached by the texts' content.

`difflib` without its junk heuristic, which would miss repeated lines in long kernels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum
from functools import lru_cache

from tui.state.code import CodeLine, colour, normal_lines

SIMILAR_ENOUGH = 0.4
"""Lines less alike than this are shown as replaced whole, since marking nearly every word says nothing."""

_WORD = re.compile(r"\w+|\s+|.")


class RowKind(StrEnum):
    """What a row of a diff is."""

    SAME = "same"
    ADDED = "added"
    REMOVED = "removed"
    SKIPPED = "skipped"


Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class DiffRow:
    """One row; `old` and `new` are line numbers from 1. `emphasis` marks changed characters.

    A skipped row stands for `skipped` equal lines.
    """

    kind: RowKind
    code: CodeLine = ()
    old: int | None = None
    new: int | None = None
    emphasis: tuple[Span, ...] = ()
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class Diff:
    """Rows, the index of the first row of each hunk, and the counts of changed lines."""

    rows: tuple[DiffRow, ...] = ()
    hunks: tuple[int, ...] = ()
    added: int = 0
    removed: int = 0
    width: int = 0

    @property
    def empty(self) -> bool:
        """Whether both texts are the same."""
        return not self.added and not self.removed


@dataclass(frozen=True, slots=True)
class _Block:
    """Equal lines (`same`), or old lines replaced by new ones; half-open ranges of line indices."""

    same: bool
    old: Span
    new: Span


@lru_cache(maxsize=64)
def diff(old: str, new: str, context: int | None = 3) -> Diff:
    """Compares two modules.

    Args:
        old: the text on the left.
        new: the text on the right.
        context: equal lines shown around each change; None shows all.
    """
    old_lines, new_lines = normal_lines(old).split("\n"), normal_lines(new).split("\n")
    blocks = _blocks(tuple(old_lines), tuple(new_lines))
    old_code, new_code = colour(old), colour(new)
    rows: list[DiffRow] = []
    hunks: list[int] = []
    added = removed = 0
    for index, block in enumerate(blocks):
        if block.same:
            first, last = index == 0, index == len(blocks) - 1
            rows.extend(_equal_rows(block, new_code, context, first, last))
            continue
        hunks.append(len(rows))
        removed += block.old[1] - block.old[0]
        added += block.new[1] - block.new[0]
        rows.extend(_changed_rows(block, old_lines, new_lines, old_code, new_code))
    width = max((len(line) for line in (*old_lines, *new_lines)), default=0)
    return Diff(tuple(rows), tuple(hunks), added, removed, width)


@lru_cache(maxsize=64)
def whole(source: str) -> Diff:
    """A module without anything to compare it with, as rows that are all the same."""
    code = colour(source)
    rows = tuple(DiffRow(RowKind.SAME, line, None, number) for number, line in enumerate(code, 1))
    return Diff(rows, (), 0, 0, max((sum(len(text) for text, _ in line) for line in code), default=0))


@lru_cache(maxsize=64)
def _blocks(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[_Block, ...]:
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    return tuple(_Block(tag == "equal", (i1, i2), (j1, j2)) for tag, i1, i2, j1, j2 in matcher.get_opcodes())


def _line(code: tuple[CodeLine, ...], index: int) -> CodeLine:
    return code[index] if index < len(code) else ()


def _equal_rows(
    block: _Block, code: tuple[CodeLine, ...], context: int | None, first: bool, last: bool
) -> list[DiffRow]:
    count = block.new[1] - block.new[0]
    head = 0 if first else context
    tail = 0 if last else context
    if context is None or head is None or tail is None or count <= head + tail + 1:
        kept: list[int | None] = list(range(count))
    else:
        kept = [*range(head), None, *range(count - tail, count)]
    rows = []
    for offset in kept:
        if offset is None:
            rows.append(DiffRow(RowKind.SKIPPED, skipped=count - (len(kept) - 1)))
        else:
            old, new = block.old[0] + offset, block.new[0] + offset
            rows.append(DiffRow(RowKind.SAME, _line(code, new), old + 1, new + 1))
    return rows


def _changed_rows(
    block: _Block,
    old_lines: list[str],
    new_lines: list[str],
    old_code: tuple[CodeLine, ...],
    new_code: tuple[CodeLine, ...],
) -> list[DiffRow]:
    old_range, new_range = range(*block.old), range(*block.new)
    old_marks: dict[int, tuple[Span, ...]] = {}
    new_marks: dict[int, tuple[Span, ...]] = {}
    if len(old_range) == len(new_range):
        for left, right in zip(old_range, new_range, strict=True):
            old_marks[left], new_marks[right] = word_marks(old_lines[left], new_lines[right])
    removed = [
        DiffRow(RowKind.REMOVED, _line(old_code, line), line + 1, None, old_marks.get(line, ())) for line in old_range
    ]
    added = [
        DiffRow(RowKind.ADDED, _line(new_code, line), None, line + 1, new_marks.get(line, ())) for line in new_range
    ]
    return removed + added


def word_marks(old: str, new: str) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Which characters of two lines differ, by words; nothing if the lines have little in common."""
    old_words, new_words = _WORD.findall(old), _WORD.findall(new)
    matcher = SequenceMatcher(None, old_words, new_words, autojunk=False)
    if matcher.ratio() < SIMILAR_ENOUGH:
        return (), ()
    old_ends, new_ends = _ends(old_words), _ends(new_words)
    left: list[Span] = []
    right: list[Span] = []
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            continue
        if i2 > i1:
            left.append((old_ends[i1], old_ends[i2]))
        if j2 > j1:
            right.append((new_ends[j1], new_ends[j2]))
    return tuple(left), tuple(right)


def _ends(words: list[str]) -> list[int]:
    ends = [0]
    for word in words:
        ends.append(ends[-1] + len(word))
    return ends


def as_text(shown: Diff, old_name: str, new_name: str) -> str:
    """The diff as plain text, for copying."""
    signs = {RowKind.SAME: " ", RowKind.ADDED: "+", RowKind.REMOVED: "-"}
    lines = [f"--- {old_name}", f"+++ {new_name}"]
    for row in shown.rows:
        if row.kind is RowKind.SKIPPED:
            lines.append(f"@@ {row.skipped} equal lines @@")
        else:
            lines.append(signs[row.kind] + "".join(text for text, _ in row.code))
    return "\n".join(lines) + "\n"
