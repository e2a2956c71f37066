"""How things are said: times, speedups, verdicts and the glyphs beside them.

Colour never carries a state alone: each tone comes with a word or a glyph. The widgets know what a
tone looks like; nothing here does.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from engine.records import INELIGIBLE_LABELS, Candidate, CandidateState, ProposerKind, RunState, Step, Verdict


class Tone(StrEnum):
    """What a piece of text means, for the eye."""

    PLAIN = "plain"
    STRONG = "strong"
    MUTED = "muted"
    ACCENT = "accent"
    GOOD = "good"
    BAD = "bad"
    WARN = "warn"
    TITLE = "title"


Piece = tuple[str, str]
"""A text and its tone: a `Tone`, or a name that one widget knows."""


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The signs of the screens; every one is a single cell wide."""

    structural: str
    local: str
    folded: str
    unfolded: str
    good: str
    bad: str
    warn: str
    waiting: str
    working: str
    queued: str
    gone: str
    best: str
    below: str
    pinned: str
    pruned: str
    marked: str
    branch: str
    last: str
    bar: str
    more: str
    dash: str
    blocks: str
    level: str
    rule: str
    add: str
    remove: str


UNICODE = Glyphs(
    structural="◆",
    local="◇",
    folded="▸",
    unfolded="▾",
    good="✓",
    bad="✗",
    warn="!",
    waiting="?",
    working="▶",
    queued="·",
    gone="–",  # noqa: RUF001
    best="★",
    below="↓",
    pinned="⚑",
    pruned="⊘",
    marked="●",
    branch="├─",
    last="└─",
    bar="│",
    more="…",
    dash="—",
    blocks=" ▁▂▃▄▅▆▇█",
    level="┄",
    rule="─",
    add="+",
    remove="−",  # noqa: RUF001
)

ASCII = Glyphs(
    structural="S",
    local="l",
    folded=">",
    unfolded="v",
    good="+",
    bad="x",
    warn="!",
    waiting="?",
    working="*",
    queued=".",
    gone="-",
    best="#",
    below="^",
    pinned="P",
    pruned="/",
    marked="@",
    branch="|-",
    last="`-",
    bar="|",
    more="~",
    dash="-",
    blocks=" ..::||##",
    level="-",
    rule="-",
    add="+",
    remove="-",
)

_VERDICTS = {
    Verdict.CORRECT: "correct",
    Verdict.INCORRECT: "wrong result",
    Verdict.COMPILE_ERROR: "does not compile",
    Verdict.RUNTIME_ERROR: "fails when run",
    Verdict.TIMEOUT: "too slow to finish",
    Verdict.OUT_OF_MEMORY: "out of memory",
    Verdict.TAMPERED: "tampered",
    Verdict.INFRASTRUCTURE_ERROR: "machine fault",
}

_SHORT = {
    Verdict.INCORRECT: "wrong",
    Verdict.COMPILE_ERROR: "no compile",
    Verdict.RUNTIME_ERROR: "fails",
    Verdict.TIMEOUT: "too slow",
    Verdict.OUT_OF_MEMORY: "memory",
    Verdict.INFRASTRUCTURE_ERROR: "machine",
}
"""Shorter words for narrow rows."""

_STATES = {
    CandidateState.PROPOSING: "being proposed",
    CandidateState.AWAITING_APPROVAL: "waits for approval",
    CandidateState.QUEUED: "queued",
    CandidateState.EVALUATING: "being judged",
    CandidateState.EVALUATED: "judged",
    CandidateState.REJECTED: "rejected",
    CandidateState.FAILED: "no usable proposal",
    CandidateState.DUPLICATE: "duplicate",
    CandidateState.ABANDONED: "abandoned",
}

_CONTROLS = {code: 0x2400 + code for code in range(32) if code not in (9, 10)} | {0x7F: 0x2421}
_CONTROLS |= dict.fromkeys((*range(0x80, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD)


def clean(text: str, tab: int = 4) -> str:
    """Text that is safe on a terminal: tabs become spaces, control and direction characters become visible.

    A kernel or a reason may hold escape sequences; none of them reaches the terminal.
    """
    return text.expandtabs(tab).translate(_CONTROLS)


def one_line(text: str) -> str:
    """The text's first line that says something, safe on a terminal."""
    return clean(next((line.strip() for line in text.splitlines() if line.strip()), ""))


def time_text(time_us: float | None) -> str:
    """A time in the unit that keeps three significant digits."""
    if time_us is None:
        return ""
    for limit, scale, unit in ((999.5, 1.0, "us"), (999_500.0, 1e3, "ms")):
        if time_us < limit:
            return f"{_three_digits(time_us / scale)} {unit}"
    return f"{_three_digits(time_us / 1e6)} s"


def _three_digits(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def speedup_text(speedup: float | None) -> str:
    """A ratio of times, such as `1.42x`."""
    return "" if speedup is None else f"{_three_digits(speedup)}x"


def duration_text(seconds: float) -> str:
    """A clock such as `4:07` or `1:02:33`."""
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


def age_text(seconds: float) -> str:
    """A rough age in one unit, such as `12 s` or `3 d`."""
    value = max(0.0, seconds)
    for limit, scale, unit in ((90, 1, "s"), (90 * 60, 60, "min"), (36 * 3600, 3600, "h")):
        if value < limit:
            return f"{value / scale:.0f} {unit}"
    return f"{value / 86400:.0f} d"


def bytes_text(count: int) -> str:
    """A size such as `12 KiB`."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} GiB"


def plural(count: int, noun: str) -> str:
    """A count with its noun: `1 candidate`, `2 candidates`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def verdict_words(verdict: Verdict) -> str:
    """What a verdict means, in two or three words."""
    return _VERDICTS[verdict]


def state_words(state: CandidateState) -> str:
    """What a state means, in two or three words."""
    return _STATES[state]


def label_words(label: str) -> str:
    """A label without its underscores."""
    return clean(label.replace("_", " "))


def run_words(state: RunState) -> tuple[str, Tone]:
    """A run's state with its tone."""
    tones = {
        RunState.RUNNING: Tone.GOOD,
        RunState.PAUSED: Tone.WARN,
        RunState.STOPPING: Tone.WARN,
        RunState.FAILED: Tone.BAD,
        RunState.CREATED: Tone.ACCENT,
    }
    return str(state), tones.get(state, Tone.PLAIN)


def step_glyph(step: Step, glyphs: Glyphs) -> str:
    """The sign of a step's size."""
    return glyphs.structural if step is Step.STRUCTURAL else glyphs.local


def may_be_best(candidate: Candidate, allowed: Collection[str] = ()) -> bool:
    """Whether the candidate counts for the best: correct, timed, not pruned, no disqualifying label."""
    return (
        candidate.state is CandidateState.EVALUATED
        and candidate.verdict is Verdict.CORRECT
        and candidate.time_us is not None
        and not candidate.pruned
        and not any(label in INELIGIBLE_LABELS and label not in allowed for label in candidate.labels)
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a candidate: a glyph, the words beside it, and a tone for both."""

    glyph: str
    words: str
    tone: Tone


def outcome(candidate: Candidate, glyphs: Glyphs, *, short: bool = False) -> Outcome:
    """Says what came of a candidate, as far as it has come, in `short` words for a narrow row."""
    if candidate.pruned:
        return Outcome(glyphs.pruned, "pruned", Tone.MUTED)
    match candidate.state:
        case CandidateState.EVALUATED if candidate.verdict is Verdict.CORRECT:
            tone = Tone.GOOD if may_be_best(candidate) else Tone.WARN
            return Outcome(glyphs.good, speedup_text(candidate.speedup) or "correct", tone)
        case CandidateState.EVALUATED if candidate.verdict is not None:
            words = verdict_words(candidate.verdict)
            return Outcome(glyphs.bad, _SHORT.get(candidate.verdict, words) if short else words, Tone.BAD)
        case CandidateState.DUPLICATE:
            return Outcome(glyphs.gone, f"same as {candidate.duplicate_of}", Tone.MUTED)
        case CandidateState.AWAITING_APPROVAL:
            return Outcome(glyphs.waiting, "approve?", Tone.WARN)
        case CandidateState.EVALUATING:
            return Outcome(glyphs.working, "judging", Tone.ACCENT)
        case CandidateState.PROPOSING if candidate.proposer is ProposerKind.MANUAL:
            return Outcome(glyphs.waiting, "answer?", Tone.WARN)
        case CandidateState.PROPOSING:
            return Outcome(glyphs.queued, "proposing", Tone.MUTED)
        case CandidateState.FAILED:
            return Outcome(glyphs.bad, "no proposal", Tone.BAD)
        case state:
            return Outcome(glyphs.queued if state is CandidateState.QUEUED else glyphs.gone, str(state), Tone.MUTED)
