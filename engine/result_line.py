"""A candidate's result as people read it, such as `1.42x eager [1.40, 1.44], 1.06x torch.compile, 71% of the bound`.

Commands, screens and reports share the words; only records are known here.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.records import Evaluation

_NAMES = {"compile": "torch.compile", "compile_max": "max-autotune", "eager_strict": "strict eager"}


def result_line(evaluation: Evaluation) -> str:
    """The speedups and the share of the bound; empty where the candidate was not timed.

    The word `same` or `slower` follows a speedup that is not surely one.
    """
    parts = []
    for name, ratio in comparisons(evaluation.speedup).items():
        interval = evaluation.speedup_ci95.get(name)
        text = f"{speedup_text(ratio)} {baseline_words(name)}"
        if interval is not None and name == "eager" and interval[0] < interval[1]:
            text += f" [{interval[0]:.2f}, {interval[1]:.2f}]"
        word = evaluation.standing.get(name, "faster")
        parts.append(text if word == "faster" else f"{text} ({word})")
    if evaluation.bound_fraction is not None:
        by = f" ({evaluation.bound_by})" if evaluation.bound_by else ""
        parts.append(f"{evaluation.bound_fraction:.0%} of the bound{by}")
    return ", ".join(parts)


def baseline_words(name: str) -> str:
    """What a baseline is called in a sentence; a person's own goes by its file."""
    return _NAMES.get(name, name)


def comparisons(speedup: Mapping[str, float]) -> dict[str, float]:
    """The speedups that tell a person something: `eager_strict` only where it differs from `eager`."""
    return {name: value for name, value in speedup.items() if name != "eager_strict" or value != speedup.get("eager")}


def speedup_text(ratio: float) -> str:
    """A ratio of times with three digits, such as `1.42x`."""
    return f"{ratio:.2f}x" if ratio < 9.995 else f"{ratio:.1f}x" if ratio < 99.95 else f"{ratio:.0f}x"
