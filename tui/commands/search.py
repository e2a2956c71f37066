"""`demo` and `run`: start a search, then watch it in the cockpit or line by line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from engine.records import Gate, RunState
from tui.commands.context import EXIT_MACHINE, EXIT_NOT_CORRECT, EXIT_USAGE, CommandFailed, Options
from tui.commands.ends_options import ends_options
from tui.commands.judging_options import judging_options
from tui.commands.look import open_cockpit
from tui.commands.model_options import model_options, ready, show_preview, with_model
from tui.commands.output import print_json, read_source, run_document

DEMO_TASK = "residual_rms_norm"
DEMO_BUDGET = 16

_POLICY_OPTIONS = {"policy": "name", "reward": "reward", "actions": "actions", "selection": "selection"}
"""The flags that belong to the policy's settings, with their names there."""


def search_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that `run` and `demo` share."""
    options = (
        click.option("--seed", type=int, help="The seed of the search; the same one replays it."),
        click.option("--gate", type=click.Choice([str(gate) for gate in Gate]), help="Which steps wait for approval."),
        click.option("--policy", help="How the search chooses; adaexplore unless another one is named."),
        click.option("--reward", type=click.Choice(["log", "paper"]), help="How a speedup becomes a reward."),
        click.option("--actions", type=click.Choice(["both", "local", "structural"]), help="Steps that are taken."),
        click.option("--selection", type=click.Choice(["ucb", "random", "greedy"]), help="How a node is picked."),
        click.option(
            "--allow", multiple=True, metavar="LABEL", help="A label that does not bar a candidate from best."
        ),
        click.option("--workers", type=click.IntRange(1, 64), help="How many candidates each device works on at once."),
        click.option(
            "--start",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="FILE",
            help="Your own kernel (ModelNew), judged first; everything grows from it.",
        ),
        click.option("--name", default="", help="A name for the run."),
        click.option("--detach", is_flag=True, help="Return at once; the search goes on."),
        click.option("--headless", is_flag=True, help="Print progress and the result instead of opening the cockpit."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
    )
    for option in reversed(options):
        command = option(command)
    return ends_options(judging_options(command))


@click.command("run")
@click.argument("task")
@click.option("--preview", is_flag=True, help="Print the first prompt and where it would go; nothing is sent.")
@model_options
@search_options
@click.pass_obj
def run_command(options: Options, /, task: str, **typed: Any) -> int:
    """Start a search on TASK: a built-in name (see `tasks`) or the path of a KernelBench problem."""
    return _start(options, task, typed, preview=typed.pop("preview"))


@click.command("demo")
@click.option("--task", default=DEMO_TASK, show_default=True, help="The built-in task.")
@search_options
@click.pass_obj
def demo_command(options: Options, /, task: str, **typed: Any) -> int:
    """Grow kernels for a built-in task, with the embedded proposer: no GPU, no key, no account needed."""
    if typed["budget"] is None:
        typed["budget"] = DEMO_BUDGET
    return _start(options, task, {**typed, "proposer": "compiler"})


def _start(options: Options, task_name: str, typed: dict[str, Any], *, preview: bool = False) -> int:
    from engine.api import start_run
    from engine.settings import parse_run_settings
    from engine.tasks.catalogue import find_task

    name, detach, headless, as_json = (typed.pop(key) for key in ("name", "detach", "headless", "as_json"))
    start = typed.pop("start")
    kernel = None if start is None else read_source(start)
    if as_json and not (detach or headless or preview):
        raise CommandFailed("--json needs --detach or --headless, since the cockpit prints nothing")
    values = options.settings.run.model_dump()
    flags = {key: value for key, value in typed.items() if value not in (None, ())}
    values["policy"].update({name: flags.pop(flag) for flag, name in _POLICY_OPTIONS.items() if flag in flags})
    values = with_model(values, flags)
    settings = ready(parse_run_settings({**values, **flags}), options.settings)
    task = find_task(task_name)
    if preview:
        show_preview(options.settings.db, task, settings, as_json)
        return 0
    run = start_run(options.settings.db, task, settings, name, kernel)
    if detach:
        if as_json:
            print_json({"run": run})
        else:
            click.echo(f"run {run} has started; watch it with: kernelgrove attach {run}")
        return 0
    if headless or as_json or not _is_interactive():
        return _follow(options.settings.db, run, as_json)
    return open_cockpit(options, run)


def _is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def _follow(db: Path, run: int, as_json: bool) -> int:
    from tui.commands.progress import follow, result_text

    def say(line: str) -> None:
        if not as_json:
            click.echo(line)

    try:
        reader, overview = follow(db, run, say)
    except KeyboardInterrupt:
        click.echo(
            f"\nthe search goes on; attach with: kernelgrove attach {run}, end it with: kernelgrove stop {run}",
            err=True,
        )
        raise
    with reader:
        if as_json:
            print_json(run_document(reader, overview))
        else:
            click.echo(result_text(reader, overview))
        state = overview.run.state
        if state is RunState.FAILED or not state.ended:
            raise CommandFailed(
                overview.run.reason or f"the engine of run {run} died; go on with: kernelgrove resume {run}",
                EXIT_USAGE if overview.run.ended_by == "task" else EXIT_MACHINE,
            )
        return 0 if overview.run.best is not None else EXIT_NOT_CORRECT
