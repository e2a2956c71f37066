from __future__ import annotations

import pytest

from engine.records import Candidate, CandidateState, ProposerKind, Step, Verdict
from tui.state.filters import FilterError, parse_filter

FAST = Candidate(
    1,
    7,
    None,
    Step.LOCAL,
    ProposerKind.HUMAN,
    CandidateState.EVALUATED,
    "split rows, atomics",
    2,
    verdict=Verdict.CORRECT,
    labels=("nondeterministic",),
    time_us=20.0,
    speedup=1.5,
    pinned=True,
)
BROKEN = Candidate(
    1,
    8,
    7,
    Step.STRUCTURAL,
    ProposerKind.COMPILER,
    CandidateState.EVALUATED,
    "two passes",
    3,
    verdict=Verdict.COMPILE_ERROR,
    reason="range must be a power of two",
)


@pytest.mark.parametrize(
    ("text", "fast", "broken"),
    [
        ("state:correct", True, False),
        ("state:comp", False, True),
        ("state:evaluated", True, True),
        ("speedup>1.2", True, False),
        ("speedup>1.5", False, False),
        ("speedup>=1.5x", True, False),
        ("time<100", True, False),
        ("step:local", True, False),
        ("step:local !atomics", False, False),
        ("!step:local", False, True),
        ("by:human", True, False),
        ("label:nondet", True, False),
        ("is:pinned", True, False),
        ("is:done depth:3", False, True),
        ("power", False, True),
        ("ROWS", True, False),
        ("n=8", False, True),
    ],
)
def test_a_filter_passes(text: str, fast: bool, broken: bool) -> None:
    wanted = parse_filter(text)
    assert wanted is not None
    assert (wanted(FAST), wanted(BROKEN)) == (fast, broken)


def test_nothing_typed_is_no_filter() -> None:
    assert parse_filter("  ") is None
    assert parse_filter("!") is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("speedup>fast", "speedup> needs a number"),
        ("colour:red", "there is no field colour"),
        ("state>1", "state cannot be compared"),
        ("state:bogus", "there is no state bogus; there are proposing, "),
        ("!by:me", "there is no by me; there are compiler, llm, human, manual"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, says: str) -> None:
    with pytest.raises(FilterError, match=says):
        parse_filter(text)
