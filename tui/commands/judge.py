"""`eval` judges candidates outside any search; `audit` judges a task."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import click

from engine.records import Evaluation, Soundness, soundness_line
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

    seed, db = secrets.randbits(62), options.settings.db
    facts, evaluations = judge(found, sources, settings, seed=seed, db=db, on_result=say)
    if as_json:
        documents = [evaluation_json(evaluation, found.name, facts.audit) for evaluation in evaluations]
        print_json(documents[0] if len(documents) == 1 else documents)
    elif facts.audit is not None and (warning := soundness_line(facts.audit)):
        click.echo(warning)
    return 0 if all(evaluation.correct for evaluation in evaluations) else EXIT_NOT_CORRECT


@click.command("audit")
@click.argument("task")
@click.option("--device", default="cpu", show_default=True, help="Where the reference runs: cpu, cuda or cuda:N.")
@click.option("--dtype", type=click.Choice(["float32", "float16", "bfloat16"]), help="What inputs are cast to.")
@click.option("--python", type=click.Path(path_type=str), help="The interpreter that the reference runs in.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
def audit_command(options: Options, /, task: str, as_json: bool, **typed: Any) -> None:
    """Say whether TASK can tell right from wrong, at its small form or at sizes that this machine can hold."""
    from engine.api import audit
    from engine.settings import parse_run_settings
    from engine.tasks.catalogue import find_task

    flags = {key: value for key, value in typed.items() if value is not None}
    settings = parse_run_settings({**options.settings.run.model_dump(), **flags})
    found = find_task(task)
    result = audit(found, settings, seed=secrets.randbits(62))
    if as_json:
        print_json({"task": found.name, **result.to_json()})
        return
    click.echo(f"{found.name} is {str(result.verdict).replace('_', ' ')}")
    for finding in result.findings:
        click.echo(f"  {finding}")
    if result.verdict is not Soundness.SOUND:
        click.echo("it can be searched, but speedups on it prove little")
