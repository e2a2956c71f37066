"""`eval`: judges candidates outside any search."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import click

from engine.records import Evaluation
from tui.commands.context import EXIT_NOT_CORRECT, Options
from tui.commands.judging_options import judging_options
from tui.commands.output import print_json, read_source


@click.command("eval")
@click.argument("task")
@click.argument("files", metavar="FILE.py...", nargs=-1, required=True, type=click.Path(path_type=Path))
@judging_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document; a list for several files.")
@click.pass_obj
def eval_command(options: Options, /, task: str, files: tuple[Path, ...], as_json: bool, **typed: Any) -> int:
    """Judge the candidates in FILE.py... for TASK with one warm judge; exits with 1 unless all are correct."""
    from engine.api import judge
    from engine.judging.report import evaluation_json, summary
    from engine.settings import parse_run_settings
    from engine.tasks.catalogue import find_task

    flags = {key: value for key, value in typed.items() if value not in (None, ())}
    settings = parse_run_settings({**options.settings.run.model_dump(), **flags})
    found = find_task(task)
    sources = [read_source(file) for file in files]

    def say(index: int, evaluation: Evaluation) -> None:
        if not as_json:
            click.echo(f"{files[index]}: {summary(evaluation)}")

    _, evaluations = judge(found, sources, settings, seed=secrets.randbits(62), on_result=say)
    if as_json:
        documents = [evaluation_json(evaluation, found.name) for evaluation in evaluations]
        print_json(documents[0] if len(documents) == 1 else documents)
    return 0 if all(evaluation.correct for evaluation in evaluations) else EXIT_NOT_CORRECT
