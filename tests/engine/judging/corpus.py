"""The corpus of candidates: what is tried, what must come of it, and the table of how it went.

Every file under tests/candidates/adversarial/<class>/ and tests/candidates/honest/ opens with a docstring: why
it is there, a line `---`, and in TOML its task and the outcome expected. `verdict` lists what is acceptable,
`labels` those that must be given: to an adversarial candidate at least, to an honest one exactly. `on_gpu` has
both where a GPU, which checks the large form itself, tells something else. `no_gain` says that the attempt is
harmless: it must be no faster than its honest `twin`. `quick` candidates are part of every test run; those with
`gpu` need one.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.records import Evaluation, Label, Task, Verdict
from engine.tasks.catalogue import find_task

FOLDER = Path(__file__).parents[2] / "candidates"
HONEST = "honest"
OUTCOME = "corpus"
"""The name under which a test reports how its candidate was judged."""

_GAIN = {"cpu": 0.95, "gpu": 0.75}
"""The share of its twin's time that a harmless attempt may come down to; a measured time of one process has noise."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The outcome that a header asks for on one kind of machine."""

    verdicts: tuple[str, ...]
    labels: frozenset[str]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One candidate of the corpus and the outcome that its header asks for by kind of machine, `cpu` and `gpu`."""

    path: Path
    group: str
    task: str
    expected: dict[str, Expected]
    no_gain: bool = False
    twin: str | None = None
    quick: bool = False
    gpu: bool = False

    @property
    def honest(self) -> bool:
        return self.group == HONEST

    @property
    def name(self) -> str:
        return f"{self.group}/{self.path.stem}"

    @property
    def source(self) -> str:
        return self.path.read_text()

    def problem(self, kind: str, evaluation: Evaluation, twin: Evaluation | None = None) -> str:
        """What is not as it must be, in one line; empty where the judge is right.

        A candidate with a disqualifying label needs no time; an honest one must have it.
        """
        expected = self.expected[kind]
        found = f"{evaluation.verdict} {list(evaluation.labels)} {evaluation.reason}"
        if evaluation.verdict not in expected.verdicts:
            return f"expected {' or '.join(expected.verdicts)}, found {found}"
        if evaluation.verdict is Verdict.CORRECT and not expected.labels <= set(evaluation.labels):
            return f"expected labels {sorted(expected.labels)}, found {found}"
        if self.honest:
            if set(evaluation.labels) != expected.labels:
                return f"expected exactly the labels {sorted(expected.labels)}, found {found}"
            if evaluation.time_us is None:
                return f"it has no time: {found}"
        if self.no_gain and evaluation.eligible():
            assert twin is not None and twin.time_us is not None and evaluation.time_us is not None
            if evaluation.time_us < _GAIN[kind] * twin.time_us:
                return f"it gains: {evaluation.time_us:.4g} us where its twin takes {twin.time_us:.4g}"
        return ""


def read_attempt(path: Path) -> Attempt:
    """Reads a candidate's header; ValueError where it asks for something that does not exist."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    why, line, header = text.partition("\n---\n")
    if not line or not why.strip():
        raise ValueError(f"{path} has no header")
    fields = tomllib.loads(header)
    usual = {"verdict": fields.pop("verdict"), "labels": fields.pop("labels")}
    expected = {"cpu": _expected(path, usual), "gpu": _expected(path, fields.pop("on_gpu", usual))}
    group = HONEST if path.parent.name == HONEST else path.parent.name
    return Attempt(path, group, fields.pop("task"), expected, **fields)


def _expected(path: Path, fields: dict[str, Any]) -> Expected:
    expected = Expected(tuple(fields["verdict"]), frozenset(fields["labels"]))
    unknown = {*expected.verdicts} - {*Verdict} | expected.labels - {*Label}
    if unknown:
        raise ValueError(f"{path} expects {sorted(unknown)}, which is no verdict and no label")
    return expected


def read_corpus() -> list[Attempt]:
    """All candidates, those of one task together."""
    paths = [*(FOLDER / "adversarial").glob("*/*.py"), *(FOLDER / HONEST).glob("*.py")]
    return sorted(map(read_attempt, sorted(paths)), key=lambda attempt: attempt.task)


def corpus_task(name: str) -> Task:
    """A task of the corpus."""
    return find_task(str(FOLDER / "tasks" / f"{name}.py"))


def table(outcomes: Sequence[tuple[str, bool]]) -> list[str]:
    """The rows of the table: for each class how many were caught and missed; the honest ones last.

    `outcomes` names the class of each candidate and whether the judge was right about it.
    """
    rows = [f"{'class':<20} {'caught':>7} {'missed':>7}"]
    groups = sorted({group for group, _ in outcomes} - {HONEST})
    for group in [*groups, "all"]:
        mine = [right for name, right in outcomes if name == group or (group == "all" and name != HONEST)]
        rows.append(f"{group:<20} {sum(mine):>7} {len(mine) - sum(mine):>7}")
    honest = [right for name, right in outcomes if name == HONEST]
    rows.append(f"honest: {sum(honest)} passed, {len(honest) - sum(honest)} false alarms")
    return rows
