"""`attach`, `runs`, `status`, `show`, `tasks` and the cockpit itself: everything that only looks."""

from __future__ import annotations

import difflib
import sys
import time
from dataclasses import asdict
from pathlib import Path

import click

from engine.records import Candidate, soundness_line
from engine.result_line import result_line
from engine.store.control import Control
from engine.store.reader import Reader, RunOverview
from tui.commands.context import CommandFailed, Options
from tui.commands.output import (
    candidate_line,
    forecast_of,
    judging_words,
    print_json,
    run_document,
    structure_line,
)
from tui.state.spending import call_line, spending_lines
from tui.state.structures import tried_structures
from tui.state.timing_words import measurement_lines
from tui.state.why import why_sentences
from tui.state.words import age_text, clean, speedup_text, time_text

PARENT = 0
"""What `--diff` without a number stands for."""


def open_cockpit(options: Options, run: int | None) -> int:
    """Opens the cockpit on a run, or on the list of runs; returns the exit code."""
    from engine.api import resume_run
    from tui.app import run_cockpit

    db = options.settings.db
    if run is None:
        _make_database(db)
    else:
        with Reader(db) as reader:
            find_run(reader, run)
    if not (sys.stdin.isatty() and (sys.stdout.isatty() or sys.stderr.isatty())):
        look = "runs" if run is None else f"status {run}"
        raise CommandFailed(f"the cockpit needs a terminal; without one, see: kernelgrove {look}")
    return run_cockpit(db, run=run, ascii=options.settings.ascii, start_engine=lambda number: resume_run(db, number))


def _make_database(db: Path) -> None:
    """Creates an absent database, so that looking at no runs is no error."""
    if not db.exists():
        Control(db).close()


def find_run(reader: Reader, run: int) -> RunOverview:
    """A run that must exist.

    Raises:
        CommandFailed: there is no such run.
    """
    overview = reader.run(run)
    if overview is None:
        raise CommandFailed(f"there is no run {run} in {reader.path}; see: kernelgrove runs")
    return overview


def find_candidate(reader: Reader, run: int, number: int) -> Candidate:
    """A candidate that must exist.

    Raises:
        CommandFailed: there is no such candidate.
    """
    found = reader.candidates(run, [number])
    if not found:
        raise CommandFailed(f"run {run} has no candidate {number}; see: kernelgrove status {run}")
    return found[0]


@click.command("attach")
@click.argument("run", type=int)
@click.pass_obj
def attach_command(options: Options, run: int) -> int:
    """Open the cockpit on RUN, whether an engine works on it or not."""
    return open_cockpit(options, run)


@click.command("runs")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
def runs_command(options: Options, as_json: bool) -> None:
    """List the runs in the database, newest first."""
    _make_database(options.settings.db)
    with Reader(options.settings.db) as reader:
        overviews = reader.runs()
        if as_json:
            print_json([run_document(reader, overview) for overview in overviews])
            return
    for overview in overviews:
        click.echo(_run_line(overview))
    if not overviews:
        click.echo("no runs yet; start one with: kernelgrove demo")


@click.command("status")
@click.argument("run", type=int, required=False)
@click.option("--structures", is_flag=True, help="Its structures and how far each came, instead of its candidates.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
def status_command(options: Options, run: int | None, structures: bool, as_json: bool) -> None:
    """Say how RUN stands (the newest one by default), with its candidates."""
    with Reader(options.settings.db) as reader:
        if run is None:
            overviews = reader.runs()
            if not overviews:
                raise CommandFailed(f"there are no runs in {reader.path}; start one with: kernelgrove demo")
            overview = overviews[0]
        else:
            overview = find_run(reader, run)
        tried = tried_structures(reader.candidates(overview.run.id), overview.run.facts) if structures else []
        if as_json:
            more = {"structures": [asdict(structure) for structure in tried]} if structures else {}
            print_json(run_document(reader, overview) | more)
            return
        click.echo(_run_line(overview))
        if kind := overview.run.facts.get("kind"):
            click.echo(f"times are {kind} on {overview.run.device}")
        if (audit := overview.run.audit) and (warning := soundness_line(audit)):
            click.echo(clean(warning))
        click.echo(f"judged with {judging_words(overview.run.settings)}")
        if overview.run.reason:
            click.echo(overview.run.reason)
        for waiting in reader.awaited(overview.run.id):
            click.echo(f"candidate {waiting.candidate} waits for the device: {clean(waiting.what)}")
        if ahead := forecast_of(reader, overview):
            click.echo(f"about {age_text(ahead.seconds)} left, as it goes now, until its {ahead.by} is used up")
        most = overview.run.settings.get("max_cost")
        for line in spending_lines(overview.spending, overview.judged, overview.run.budget, most):
            click.echo(line)
        lines = map(structure_line, tried) if structures else map(candidate_line, reader.candidates(overview.run.id))
        for line in lines:
            click.echo(line)


def _run_line(overview: RunOverview) -> str:
    run = overview.run
    alive = overview.engine is not None and overview.engine.alive
    working = "" if alive or run.state.ended else " (no engine)"
    best = f"best {speedup_text(overview.best_speedup)} ({run.best})" if run.best else "no best yet"
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.created_at))
    return (
        f"{run.id:>4}  {run.name:<20} {str(run.state) + working:<20} {overview.judged:>4}/{run.budget:<4} "
        f"{overview.correct:>3} correct  {best:<18} {when}"
    )


@click.command("show")
@click.argument("run", type=int)
@click.argument("candidate", type=int)
@click.option("--source", "part", flag_value="source", help="Its source text.")
@click.option("--why", "part", flag_value="why", help="Why it was asked for there, and how it was made.")
@click.option("--prompt", "part", flag_value="prompt", help="What a model was sent for it, exactly.")
@click.option("--log", "part", flag_value="log", help="What a model answered, and the log of its evaluation.")
@click.option(
    "--diff",
    "other",
    type=click.IntRange(0),
    is_flag=False,
    flag_value=PARENT,
    metavar="[OTHER]",
    help="Its difference from its parent, or from another candidate.",
)
@click.option("--json", "as_json", is_flag=True, help="The evaluation as one JSON document.")
@click.pass_obj
def show_command(
    options: Options, run: int, candidate: int, part: str | None, other: int | None, as_json: bool
) -> None:
    """Show CANDIDATE of RUN: its verdict, measurements and checks, or one part of it."""
    with Reader(options.settings.db) as reader:
        find_run(reader, run)
        found = find_candidate(reader, run, candidate)
        if as_json:
            _show_json(reader, found)
        elif other is not None:
            _show_diff(reader, run, _base(reader, found, other), candidate)
        elif part == "source":
            click.echo(reader.source(run, candidate) or "", nl=False)
        elif part == "log":
            _show_log(reader, run, candidate)
        elif part == "prompt":
            _show_prompt(reader, run, candidate)
        elif part == "why":
            _show_why(reader, run, candidate)
        else:
            _show_summary(reader, found)


def _base(reader: Reader, candidate: Candidate, other: int) -> int:
    """The candidate that another is compared with.

    Raises:
        CommandFailed: there is no such candidate, or no parent.
    """
    if other != PARENT:
        return find_candidate(reader, candidate.run, other).number
    if candidate.parent is None:
        raise CommandFailed(f"candidate {candidate.number} grew from the root; name one to compare with: --diff OTHER")
    return candidate.parent


def _show_json(reader: Reader, candidate: Candidate) -> None:
    from engine.judging.report import evaluation_json

    evaluation = reader.evaluation(candidate.run, candidate.number)
    if evaluation is None:
        raise CommandFailed(f"candidate {candidate.number} is {candidate.state} and has not been judged")
    task = reader.task(candidate.run)
    print_json(evaluation_json(evaluation, task.name, find_run(reader, candidate.run).run.audit))


def _show_diff(reader: Reader, run: int, old: int, new: int) -> None:
    texts = [(reader.source(run, number) or "").splitlines(keepends=True) for number in (old, new)]
    click.echo("".join(difflib.unified_diff(texts[0], texts[1], f"candidate {old}", f"candidate {new}")), nl=False)


def _show_why(reader: Reader, run: int, candidate: int) -> None:
    note = reader.proposal(run, candidate)
    if note is None:
        click.echo("a person entered it")
        return
    for sentence in why_sentences(note, reader.calls(run, candidate)):
        click.echo(sentence)


def _show_prompt(reader: Reader, run: int, candidate: int) -> None:
    """Prints every prompt that was sent for a candidate, exactly, each under a line that says what it was."""
    calls = reader.calls(run, candidate)
    if not calls:
        raise CommandFailed(f"no model was asked for candidate {candidate}, so there is no prompt")
    for call in calls:
        click.echo(f"===== {call_line(call)}")
        for role, text in reader.prompt(call.id):
            click.echo(f"----- {role}")
            click.echo(text)


def _show_log(reader: Reader, run: int, candidate: int) -> None:
    """Prints what the judge wrote down, and what a model answered, as far as it has been written."""
    for call in reader.calls(run, candidate):
        click.echo(f"===== {call_line(call)}")
        click.echo(reader.response(call.id))
    evaluation = reader.evaluation(run, candidate)
    click.echo(evaluation.log if evaluation else "", nl=False)


def _show_summary(reader: Reader, candidate: Candidate) -> None:
    click.echo(candidate_line(candidate))
    if candidate.reason:
        click.echo(clean(candidate.reason))
    for call in reader.calls(candidate.run, candidate.number):
        click.echo(f"asked: {call_line(call)}")
    evaluation = reader.evaluation(candidate.run, candidate.number)
    if evaluation is None:
        return
    if evaluation.numerics:
        numerics = evaluation.numerics
        click.echo(
            f"numerics: tier {numerics.tier}, relative error {numerics.relative_error:.2e}, "
            f"largest {numerics.max_error:.2e}, the reference's own noise {numerics.reference_noise:.2e}"
        )
    for check in evaluation.checks:
        click.echo(f"check {check.name}: {'passed' if check.passed else 'FAILED'} {clean(check.detail)}")
    if line := result_line(evaluation):
        click.echo(line)
    for case in evaluation.cases:
        if case.measurement:
            low, high = case.measurement.ci95_us
            baselines = ", ".join(f"{name} {time_text(value)}" for name, value in case.baselines.items())
            click.echo(
                f"case {case.name}: {time_text(case.measurement.time_us)} [{time_text(low)}, {time_text(high)}] "
                f"{case.measurement.kind}, {case.measurement.mode}, {case.measurement.cache}; {baselines}; "
                f"bound {time_text(case.bound_us) or '-'}{f' ({case.bound_by})' if case.bound_by else ''}"
            )
        for name, text in measurement_lines(case):
            click.echo(f"  {name}: {text}")
    for kernel in evaluation.static:
        click.echo(
            f"kernel {kernel.kernel} for {kernel.arch}: {kernel.registers} registers, {kernel.spills} spills, "
            f"{kernel.shared_bytes} bytes of shared memory"
        )


@click.command("tasks")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def tasks_command(as_json: bool) -> None:
    """List the built-in tasks."""
    from engine.tasks.catalogue import builtin_tasks

    tasks = builtin_tasks()
    if as_json:
        print_json(
            [{"name": task.name, "family": task.family, "format": task.format, "path": task.path} for task in tasks]
        )
        return
    for task in tasks:
        click.echo(f"{task.name:<20} {task.family:<14} {_first_line(Path(task.path))}")


def _first_line(path: Path) -> str:
    return path.read_text().splitlines()[0].strip('"')
