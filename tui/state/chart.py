"""Best so far over the candidates judged, as rows of block characters."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from engine.records import Candidate, CandidateState
from tui.state.words import Glyphs, Piece, Tone, may_be_best, speedup_text


@dataclass(frozen=True, slots=True)
class Progress:
    """The best speedup after each candidate that was judged, in the order of their numbers."""

    best: tuple[float | None, ...] = ()


def progress(candidates: Iterable[Candidate], allowed: Collection[str] = ()) -> Progress:
    """Folds candidates into the curve of the best."""
    best: float | None = None
    curve: list[float | None] = []
    for candidate in sorted(candidates, key=lambda each: each.number):
        if candidate.state not in (CandidateState.EVALUATED, CandidateState.FAILED):
            continue
        if may_be_best(candidate, allowed) and candidate.speedup is not None:
            best = candidate.speedup if best is None else max(best, candidate.speedup)
        curve.append(best)
    return Progress(tuple(curve))


def chart_rows(shown: Progress, width: int, height: int, budget: int, glyphs: Glyphs) -> list[tuple[Piece, ...]]:
    """Draws the curve over the whole budget: columns of blocks, the axis of speedups on the left.

    The scale starts at zero, so that heights compare; a dashed line marks the baseline, 1x.
    """
    axis = 8
    columns, levels = width - axis - 1, height - 1
    known = [value for value in shown.best if value is not None]
    if columns < 8 or levels < 2:
        return []
    if not known:
        return [(("  no correct candidate yet", Tone.MUTED),)]
    top = max(*known, 1.0) * 1.05
    slots = max(budget, len(shown.best), 1)
    heights: list[float | None] = []
    for column in range(columns):
        index = min(int(column * slots / columns), slots - 1)
        value = shown.best[index] if index < len(shown.best) else None
        heights.append(None if value is None else value / top * levels)
    base_row = levels - 1 - int(1.0 / top * levels)
    rows: list[tuple[Piece, ...]] = []
    for row in range(levels):
        floor = levels - 1 - row
        label = ""
        if row == 0:
            label = speedup_text(known[-1])
        elif row == base_row:
            label = "1.00x"
        pieces: list[Piece] = [(f"{label:>{axis - 2}} ", Tone.STRONG if row == 0 else Tone.MUTED)]
        pieces.append((glyphs.bar, Tone.MUTED))
        for value in heights:
            fill = 0.0 if value is None else min(1.0, max(0.0, value - floor))
            if fill <= 0:
                piece = (glyphs.level if row == base_row else " ", str(Tone.MUTED))
            else:
                step = max(1, round(fill * (len(glyphs.blocks) - 1)))
                piece = (glyphs.blocks[step], "bar")
            if pieces[-1][1] == piece[1] and len(pieces) > 2:
                pieces[-1] = (pieces[-1][0] + piece[0], piece[1])
            else:
                pieces.append(piece)
        rows.append(tuple(pieces))
    right = f"{slots} judged"
    line = f"{'1':<{max(1, columns - len(right))}}{right}"
    rows.append(((" " * axis, Tone.MUTED), (line[:columns], Tone.MUTED)))
    return rows
