"""What a person types to see fewer candidates: `state:incorrect speedup>1.2 step:local !text`.

All terms must hold; `!` turns a term around; a bare word is looked for in idea, reason and labels.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from engine.records import Candidate, CandidateState, Label, ProposerKind, Step, Verdict

Test = Callable[[Candidate], bool]

_TERM = re.compile(r"(?P<name>[a-z_]+)(?P<sign>>=|<=|>|<|=|:)(?P<value>.*)", re.IGNORECASE)
_NUMBERS: dict[str, Callable[[Candidate], float | None]] = {
    "speedup": lambda candidate: candidate.speedup,
    "time": lambda candidate: candidate.time_us,
    "depth": lambda candidate: candidate.depth,
    "n": lambda candidate: candidate.number,
    "reward": lambda candidate: candidate.reward,
}
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">": lambda left, right: left > right,
    "<": lambda left, right: left < right,
    ">=": lambda left, right: left >= right,
    "<=": lambda left, right: left <= right,
    "=": lambda left, right: left == right,
    ":": lambda left, right: left == right,
}
_WORDS: dict[str, Callable[[Candidate], tuple[str, ...]]] = {
    "state": lambda candidate: (candidate.state, *((candidate.verdict,) if candidate.verdict else ())),
    "step": lambda candidate: (candidate.step,),
    "by": lambda candidate: (candidate.proposer,),
    "label": lambda candidate: candidate.labels,
    "is": lambda candidate: (
        *(("pinned",) if candidate.pinned else ()),
        *(("pruned",) if candidate.pruned else ()),
        "done" if candidate.state.final else "open",
    ),
}


_KNOWN: dict[str, tuple[str, ...]] = {
    "state": (*CandidateState, *Verdict),
    "step": tuple(Step),
    "by": tuple(ProposerKind),
    "label": tuple(Label),
    "is": ("pinned", "pruned", "done", "open"),
}
"""What each field of words may be."""


class FilterError(ValueError):
    """A filter cannot be read; the message says which part and what it may be."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter as typed, and the test it stands for."""

    text: str
    tests: tuple[Test, ...]

    def __call__(self, candidate: Candidate) -> bool:
        """Whether the candidate passes."""
        return all(test(candidate) for test in self.tests)


def parse_filter(text: str) -> Filter | None:
    """Reads a filter; None if there is nothing in it.

    Raises:
        FilterError: a term names an unknown field, or compares with something that is no number.
    """
    tests = tuple(_term(term) for term in text.split() if term != "!")
    return Filter(text.strip(), tests) if tests else None


def _term(term: str) -> Test:
    if term.startswith("!"):
        inner = _term(term[1:])
        return lambda candidate: not inner(candidate)
    found = _TERM.fullmatch(term)
    if found is None:
        return _text_test(term)
    name, sign, value = found["name"].lower(), found["sign"], found["value"]
    if name in _NUMBERS:
        return _number_test(name, sign, value)
    if name in _WORDS and sign in ":=":
        return _word_test(name, value)
    if sign != ":":
        raise FilterError(f"{name} cannot be compared; {', '.join(_NUMBERS)} can")
    raise FilterError(f"there is no field {name}; there are {', '.join((*_WORDS, *_NUMBERS))}")


def _number_test(name: str, sign: str, value: str) -> Test:
    try:
        wanted = float(value.removesuffix("x"))
    except ValueError:
        raise FilterError(f"{name}{sign} needs a number, such as {name}{sign}1.2") from None
    read, compare = _NUMBERS[name], _COMPARISONS[sign]

    def test(candidate: Candidate) -> bool:
        number = read(candidate)
        return number is not None and compare(number, wanted)

    return test


def _word_test(name: str, value: str) -> Test:
    """Beginnings are enough: `state:comp` finds what does not compile."""
    read, wanted = _WORDS[name], value.lower().replace("-", "_")
    if not any(word.startswith(wanted) for word in _KNOWN[name]):
        raise FilterError(f"there is no {name} {value}; there are {', '.join(_KNOWN[name])}")
    return lambda candidate: any(word.startswith(wanted) for word in read(candidate))


def _text_test(word: str) -> Test:
    wanted = word.lower()

    def test(candidate: Candidate) -> bool:
        return (
            wanted in candidate.idea.lower()
            or wanted in (candidate.reason or "").lower()
            or any(wanted in label for label in candidate.labels)
        )

    return test
