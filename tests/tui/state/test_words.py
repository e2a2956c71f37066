from __future__ import annotations

from dataclasses import fields

import pytest
from rich.cells import cell_len

from engine.records import CandidateState, RunState, Verdict
from tui.state.words import (
    ASCII,
    UNICODE,
    age_text,
    clean,
    duration_text,
    one_line,
    run_words,
    speedup_text,
    state_words,
    time_text,
    verdict_words,
)


@pytest.mark.parametrize(
    ("time_us", "text"),
    [
        (0.5, "0.50 us"),
        (12.34, "12.3 us"),
        (99.96, "100 us"),
        (999.4, "999 us"),
        (999.6, "1.00 ms"),
        (2780.0, "2.78 ms"),
        (1_500_000.0, "1.50 s"),
        (None, ""),
    ],
)
def test_times_keep_three_digits(time_us: float | None, text: str) -> None:
    assert time_text(time_us) == text


def test_speedups_and_clocks() -> None:
    assert [speedup_text(value) for value in (0.876, 1.42, 9.996, 22.04, None)] == [
        "0.88x",
        "1.42x",
        "10.0x",
        "22.0x",
        "",
    ]
    assert [duration_text(value) for value in (7, 247, 3753)] == ["0:07", "4:07", "1:02:33"]
    assert [age_text(value) for value in (5, 600, 7300, 400_000)] == ["5 s", "10 min", "2 h", "5 d"]


def test_nothing_that_a_terminal_obeys_survives() -> None:
    hostile = "a\x1b[31mb\x07c\x9bd\u202ee\tf\r\ng\x7f"
    shown = clean(hostile)
    assert not any((ord(character) < 32 and character != "\n") or 0x7F <= ord(character) < 0xA0 for character in shown)
    assert "\u202e" not in shown
    assert one_line("\n  \n  first\x1b words\nsecond") == "first␛ words"


def test_every_state_and_verdict_has_words() -> None:
    assert all(verdict_words(verdict) for verdict in Verdict)
    assert all(state_words(state) for state in CandidateState)
    assert all(run_words(state)[0] for state in RunState)


def test_ascii_glyphs_are_ascii_and_both_sets_are_equally_wide() -> None:
    for field in fields(UNICODE):
        rich_sign, plain_sign = getattr(UNICODE, field.name), getattr(ASCII, field.name)
        assert plain_sign.isascii()
        assert cell_len(rich_sign) == cell_len(plain_sign), field.name
