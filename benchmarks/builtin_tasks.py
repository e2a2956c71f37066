"""Searches every built-in task with the compiler proposer and prints what was found beside the baselines.

Run: python benchmarks/builtin_tasks.py [--budget 30] [--workers 4] [--db FILE] [TASK...]
Times are in microseconds at the task's large form; the last column is the best found against the best baseline, at
the same precision tier.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from engine.api import start_run
from engine.records import Evaluation
from engine.settings import RunSettings
from engine.store.reader import Reader, RunOverview
from engine.tasks.catalogue import builtin_tasks, find_task

COLUMNS = ("eager", "compile", "compile_max")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tasks", nargs="*")
    parser.add_argument("--budget", type=int, default=30)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--numerics", default="reduced")
    parser.add_argument("--db", type=Path, default=Path("builtin_tasks.db"))
    options = parser.parse_args()
    names = options.tasks or [task.name for task in builtin_tasks()]
    print(
        f"{'task':<20} {'eager':>9} {'compile':>9} {'max':>9} {'best':>9} {'tier':<8} "
        f"{'x eager':>7} {'x best baseline':>15}  judged correct seconds  what",
        flush=True,
    )
    for name in names:
        settings = RunSettings(budget=options.budget, workers=options.workers, numerics=options.numerics)
        start = time.monotonic()
        run = start_run(options.db, find_task(name), settings)
        overview, evaluation, idea = _wait(options.db, run)
        print(_row(name, overview, evaluation, idea, time.monotonic() - start), flush=True)
    with Reader(options.db) as reader:
        facts = reader.runs()[0].run.facts
    print(f"{facts.get('device')}, {facts.get('kind')}, {facts.get('toolchain')}")


def _wait(db: Path, run: int) -> tuple[RunOverview, Evaluation | None, str]:
    with Reader(db) as reader:
        while True:
            overview = reader.run(run)
            assert overview is not None
            if overview.run.state.ended or not (overview.engine and overview.engine.alive):
                break
            time.sleep(0.5)
        best = overview.run.best
        if best is None:
            return overview, None, overview.run.reason or ""
        chain = [best]
        while chain[-1] is not None:
            (candidate,) = reader.candidates(run, [chain[-1]])
            if candidate.parent is None:
                break
            chain.append(candidate.parent)
        ideas = [reader.candidates(run, [number])[0].idea for number in reversed(chain)]
        return overview, reader.evaluation(run, best), " | ".join(ideas)


def _row(name: str, overview: RunOverview, evaluation: Evaluation | None, idea: str, seconds: float) -> str:
    counts = f"{overview.judged:>6} {overview.correct:>7} {seconds:>7.0f}  {idea}"
    if evaluation is None or evaluation.time_us is None:
        return f"{name:<20} {'-':>9} {'-':>9} {'-':>9} {'-':>9} {'-':<8} {'-':>7} {'-':>15}  {counts}"
    baselines = {column: evaluation.cases[0].baselines.get(column) for column in COLUMNS}
    known = [value for value in baselines.values() if value]
    cells = " ".join(f"{value:>9.1f}" if value else f"{'-':>9}" for value in baselines.values())
    tier = evaluation.numerics.tier if evaluation.numerics else ""
    against = min(known) / evaluation.time_us if known else float("nan")
    return (
        f"{name:<20} {cells} {evaluation.time_us:>9.1f} {tier:<8} {evaluation.speedup.get('eager', 0):>7.2f} "
        f"{against:>15.2f}  {counts}"
    )


if __name__ == "__main__":
    main()
