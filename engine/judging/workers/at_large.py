"""What a candidate does at the large sizes on a machine without a GPU, where nothing has memory.

Launches are sampled in a few programs, so that the engine can model their time; what they write, leave out or
reach for outside their tensors is written down beside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engine.judging.second_opinion import OUTSIDE
from engine.judging.wire import Message
from engine.judging.workers.answerer import Fault
from engine.judging.workers.faults import one_line
from engine.judging.workers.large_form import LargeForm
from engine.judging.workers.trials import TRIALS

if TYPE_CHECKING:
    from engine.judging.workers.examination import Examination

_COLLAPSED = 0.4
"""The share of the reference's bytes or operations below which a candidate does something simpler.

Half is what a causal mask leaves of an attention.
"""

_MOST_OF_IT = 0.5
"""The share of an output that counted operations must have written."""

_SMALL = 0.01
"""The share of all bytes up to which an output is small: computing it out of sight would gain nothing."""

Json = Mapping[str, Any]


def sample(examination: Examination, large: LargeForm) -> None:
    """Has the candidate run at the large form without memory, and tells the engine what its launches would move.

    A candidate that is correct but fails here stays correct; it has no time then.
    """
    message: Message = {
        "event": "trace",
        "case": examination.case,
        "launches": examination.findings.kernels,
        "trace": None,
        "problem": large.problem,
    }
    if large.contestant:
        try:
            answer = _asked(examination, large)
            message["trace"] = answer.get("trace")
            _note_writers(examination, answer, large)
            _note_kernels(examination, message["trace"])
            _note_collapse(examination, answer, large.cost)
        except Fault as fault:
            message["problem"] = fault.reason
    examination.report(message)


def look_outside(examination: Examination, large: LargeForm, fault: Fault) -> None:
    """Finds out whether a candidate that left its tensors at the small sizes does so at the large ones.

    Where it does not, its fault gets the label of a candidate that is made for the large ones.
    """
    if not large.contestant:
        return
    try:
        answer = _asked(examination, large, corners=True)
    except Fault:
        return
    outside = answer.get("outside")
    if isinstance(outside, list) and outside:
        detail = f"kernel {outside[0]} accesses memory outside its tensors at the large sizes too"
        examination.findings.checks.append({"name": OUTSIDE, "passed": False, "detail": one_line(detail)})
    elif not _notes(answer):
        fault.labels = (*fault.labels, "shape_specialised")


def _asked(examination: Examination, large: LargeForm, corners: bool = False) -> Message:
    mutated = list(examination.question(TRIALS[0]).mutated)
    return examination.ask({"op": "sample", "large": large.contestant, "mutated": mutated, "corners": corners})


def _notes(answer: Message) -> list[str]:
    """What the counts do not show."""
    notes = answer.get("notes")
    return list(map(str, notes)) if isinstance(notes, list) else []


def _note_kernels(examination: Examination, trace: Any) -> None:
    """Kernels that only the large form launches were modelled and never checked."""
    known = {kernel.get("qualname") for kernel in examination.findings.kernels}
    for entry in trace if isinstance(trace, list) else []:
        if isinstance(entry, dict) and entry.get("kind") == "launch" and entry.get("qualname") not in known:
            detail = f"kernel {entry.get('kernel')} is launched at the large sizes only, where nothing is checked"
            examination.note("checked kernels", detail, "shape_specialised")


def _note_writers(examination: Examination, answer: Message, large: LargeForm) -> None:
    """Outputs that no counted operation wrote were computed by host code, out of the model's sight."""
    written = _shares(answer, "written")
    if written is not None and min(written, default=1.0) < _MOST_OF_IT:
        written = _with_what_few_programs_write(examination, written, large)
    # Of an output, all must be written; of an input that is changed in place, it may be one row.
    for shares, least in ((written, _MOST_OF_IT), (_shares(answer, "changed"), 1e-12)):
        if shares is None or min(shares, default=1.0) < least:
            examination.findings.labels.add("no_triton")
    if _notes(answer):
        detail = one_line("; ".join(_notes(answer)))
        examination.findings.checks.append({"name": "model", "passed": True, "detail": detail})


def _shares(answer: Message, name: str) -> list[float] | None:
    """The shares of tensors that counted operations wrote, as the contestant gives them; None where it does not."""
    shares = answer.get(name)
    return shares if isinstance(shares, list) and all(isinstance(share, float) for share in shares) else None


def _with_what_few_programs_write(examination: Examination, written: list[float], large: LargeForm) -> list[float]:
    """Takes small outputs as written that a program at an end of the grid writes, as statistics of a row often are."""
    sizes = large.cost["outputs"] if large.cost is not None else []
    try:
        found = _shares(_asked(examination, large, corners=True), "written")
    except Fault:
        return written
    if large.cost is None or found is None or len(found) != len(sizes) or len(written) != len(sizes):
        return written
    small = _SMALL * float(large.cost["bound"]["bytes"])
    return [
        1.0 if size <= small and touched > 0.0 else share
        for share, touched, size in zip(written, found, sizes, strict=True)
    ]


def _note_collapse(examination: Examination, answer: Message, cost: Json | None) -> None:
    """A right answer for much less work than the reference takes: the task has a simpler form, which is allowed."""
    trace = answer.get("trace")
    if cost is None or _notes(answer) or "no_triton" in examination.findings.labels or not isinstance(trace, list):
        return
    bound = cost["bound"]
    try:
        done = {"bytes": math.fsum(map(_bytes, trace)), "operations of matrix products": math.fsum(map(_work, trace))}
    except (KeyError, TypeError, ValueError, AttributeError):
        # The candidate's process wrote it.
        return
    needed = {"bytes": bound["bytes"], "operations of matrix products": bound["flops"]}
    for what, least in needed.items():
        if done[what] < _COLLAPSED * least:
            detail = f"{done[what]:.3g} {what} where the reference needs {least:.3g}: a simpler form of the same"
            examination.note("same work", detail, "algebraic_collapse")


def _bytes(entry: Json) -> float:
    """Bytes that one launch or library call moves, repeated accesses counted each time."""
    if entry["kind"] == "library":
        return float(entry["read_bytes"]) + float(entry["write_bytes"])
    regions: Sequence[Json] = entry["traffic"]["regions"]
    return math.fsum(float(flow["bytes"]) for region in regions for flow in region["flows"].values())


def _work(entry: Json) -> float:
    """Operations of one launch or library call, those that are no matrix product included: it may be written out."""
    if entry["kind"] == "library":
        return float(entry["flops"]) + float(entry["operations"])
    traffic = entry["traffic"]
    dots = math.fsum(2.0 * math.prod(dot["shape"]) * float(dot["count"]) for dot in traffic["dots"])
    return dots + math.fsum(map(float, traffic["operations"].values()))
