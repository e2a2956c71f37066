from __future__ import annotations

import random

from tui.state.code import colour
from tui.state.diff import Diff, RowKind, as_text, diff, whole, word_marks

OLD = "import triton\n\n\ndef first():\n    return 1\n\n\ndef second():\n    return 2\n"
NEW = (
    "import triton\n\n\ndef first():\n    return 10\n\n\ndef second():\n    return 2\n\n\ndef third():\n    return 3\n"
)


def text_of(shown: Diff, *kinds: RowKind) -> list[str]:
    return ["".join(text for text, _ in row.code) for row in shown.rows if row.kind in kinds]


def test_both_texts_can_be_read_back_from_the_whole_diff() -> None:
    shown = diff(OLD, NEW, None)
    assert "\n".join(text_of(shown, RowKind.SAME, RowKind.REMOVED)).rstrip("\n") == OLD.rstrip("\n")
    assert "\n".join(text_of(shown, RowKind.SAME, RowKind.ADDED)).rstrip("\n") == NEW.rstrip("\n")


def test_hunks_point_at_the_first_row_of_each_change() -> None:
    shown = diff(OLD, NEW)
    assert len(shown.hunks) == 2
    assert all(shown.rows[hunk].kind is not RowKind.SAME for hunk in shown.hunks)
    assert (shown.added, shown.removed) == (5, 1)


def test_equal_lines_far_from_changes_are_one_row_with_their_count() -> None:
    old = "".join(f"line_{number}\n" for number in range(100))
    shown = diff(old, old.replace("line_50\n", "changed\n"), 2)
    skipped = [row.skipped for row in shown.rows if row.kind is RowKind.SKIPPED]
    assert skipped == [48, 47]
    assert len(shown.rows) == 2 + 2 + 2 + 2


def test_changed_words_are_marked_and_nothing_else() -> None:
    left, right = word_marks("run[grid](x, BLOCK=512, num_warps=4)", "run[grid](x, BLOCK=1024, num_warps=4)")
    assert left == ((19, 22),)
    assert right == ((19, 23),)
    assert word_marks("completely different", "x = tl.load(y)") == ((), ())


def test_random_edits_never_break_a_diff() -> None:
    random_ = random.Random(5)
    words = ["a = 1", "", "    b = tl.load(x)", "'''", "def f():", '"""doc', "x = '[/b]'"]
    for _ in range(200):
        old = "\n".join(random_.choice(words) for _ in range(random_.randrange(20)))
        new = "\n".join(random_.choice(words) for _ in range(random_.randrange(20)))
        for context in (0, 1, 3, None):
            shown = diff(old, new, context)
            added = text_of(shown, RowKind.ADDED)
            assert len(added) == shown.added
            assert text_of(shown, RowKind.SAME, RowKind.ADDED) == (new.splitlines() or [""]) or context is not None


def test_a_whole_module_keeps_its_lines_and_says_what_its_words_are() -> None:
    shown = whole(OLD)
    assert text_of(shown, RowKind.SAME) == OLD.splitlines()
    assert ("import", "keyword") in shown.rows[0].code
    assert ("def", "keyword") in colour("def f():\n  pass\n")[0]


def test_escape_sequences_in_a_source_are_visible_and_harmless() -> None:
    shown = whole("x = '\x1b[31m'\n")
    assert text_of(shown, RowKind.SAME) == ["x = '␛[31m'"]


def test_the_diff_as_text_is_a_patch_that_people_can_read() -> None:
    text = as_text(diff(OLD, NEW, 0), "candidate 1", "candidate 2")
    assert text.startswith("--- candidate 1\n+++ candidate 2\n")
    assert "-    return 1\n+    return 10\n" in text
