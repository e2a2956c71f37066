"""The commands that ask something of a run; the engine's answer is waited for and printed."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click

from engine.records import Command, CommandKind, CommandState, Step
from engine.store.control import Control
from engine.store.reader import Reader
from tui.commands.context import CommandFailed, Options
from tui.commands.ends_options import ends_options
from tui.commands.look import find_candidate, find_run
from tui.commands.output import read_source

ANSWER_TIMEOUT_S = 10.0


def _ask(options: Options, run: int, kind: CommandKind, candidates: tuple[int, ...] = (), argument: str = "") -> int:
    """Asks, waits for the answers and prints them; returns 0 if everything was done or waits for an engine."""
    db = options.settings.db
    with Reader(db) as reader:
        find_run(reader, run)
        for candidate in candidates:
            if candidate:
                find_candidate(reader, run, candidate)
    with Control(db) as control:
        commands = [control.ask(run, kind, candidate, argument) for candidate in candidates or (None,)]
    answers = [_wait(db, command) for command in commands]
    for command in answers:
        queued = f"the engine is busy and has not answered yet; command {command.id} is queued"
        click.echo(command.answer or queued, err=command.state is CommandState.REFUSED)
    return 2 if any(command.state is CommandState.REFUSED for command in answers) else 0


def _wait(db: Path, command: Command) -> Command:
    """Waits for the answer of a living engine; a command that waits for a new engine is returned as it is."""
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    with Reader(db) as reader:
        while command.state is CommandState.QUEUED and not command.answer and time.monotonic() < deadline:
            time.sleep(0.05)
            command = reader.command(command.id) or command
    return command


def _run_command(kind: CommandKind, text: str) -> click.Command:
    @click.command(str(kind), help=text)
    @click.argument("run", type=int)
    @click.pass_obj
    def command(options: Options, run: int) -> int:
        return _ask(options, run, kind)

    return command


def _candidates_command(kind: CommandKind, text: str) -> click.Command:
    @click.command(str(kind), help=text)
    @click.argument("run", type=int)
    @click.argument("candidates", metavar="CANDIDATE...", type=int, nargs=-1, required=True)
    @click.pass_obj
    def command(options: Options, run: int, candidates: tuple[int, ...]) -> int:
        return _ask(options, run, kind, candidates)

    return command


pause_command = _run_command(CommandKind.PAUSE, "Pause RUN: running work is finished, nothing new is started.")
stop_command = _run_command(CommandKind.STOP, "End RUN: running work is killed, waiting work is abandoned.")
approve_command = _candidates_command(CommandKind.APPROVE, "Let waiting candidates of RUN be judged.")
prune_command = _candidates_command(CommandKind.PRUNE, "Take candidates, and what grew from them, out of RUN.")
restore_command = _candidates_command(CommandKind.RESTORE, "Bring pruned candidates of RUN back.")
pin_command = _candidates_command(CommandKind.PIN, "Mark candidates of RUN.")
retest_command = _candidates_command(CommandKind.RETEST, "Judge candidates of RUN again, before all others.")
unpin_command = _candidates_command(CommandKind.UNPIN, "Take marks of candidates of RUN away.")


@click.command("reject")
@click.argument("run", type=int)
@click.argument("candidates", metavar="CANDIDATE...", type=int, nargs=-1, required=True)
@click.option("--reason", default="", help="Why; kept with the candidate.")
@click.pass_obj
def reject_command(options: Options, run: int, candidates: tuple[int, ...], reason: str) -> int:
    """Turn waiting candidates of RUN down; they cost no budget."""
    return _ask(options, run, CommandKind.REJECT, candidates, reason)


@click.command("budget")
@click.argument("run", type=int)
@click.argument("candidates", metavar="N", type=click.IntRange(1))
@click.pass_obj
def budget_command(options: Options, run: int, candidates: int) -> int:
    """Let RUN judge N candidates in all."""
    return _ask(options, run, CommandKind.BUDGET, argument=str(candidates))


@click.command("resume")
@click.argument("run", type=int)
@ends_options
@click.pass_obj
def resume_command(options: Options, /, run: int, **typed: Any) -> None:
    """Let a paused RUN go on, or start a new engine where the old one died or the run had ended.

    Options change when it ends.
    """
    from engine.api import resume_run

    with Reader(options.settings.db) as reader:
        find_run(reader, run)
    ends = {name: value for name, value in typed.items() if value is not None}
    click.echo(resume_run(options.settings.db, run, ends))


@click.command("hint")
@click.argument("run", type=int)
@click.argument("words", metavar="[CANDIDATE] TEXT", nargs=-1, required=True)
@click.pass_obj
def hint_command(options: Options, run: int, words: tuple[str, ...]) -> int:
    """Give RUN advice that every proposal is shown, or every one that grows from CANDIDATE."""
    candidate = int(words[0]) if len(words) > 1 and words[0].isdecimal() else None
    text = " ".join(words if candidate is None else words[1:])
    return _ask(options, run, CommandKind.HINT, () if candidate is None else (candidate,), text)


@click.command("answer")
@click.argument("run", type=int)
@click.argument("candidate", type=int)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.pass_obj
def answer_command(options: Options, run: int, candidate: int, file: Path) -> int:
    """Answer the prompt of CANDIDATE of RUN (see `show --prompt`) with the text in FILE, or - for what is typed.

    An answer is what a model would give: a module in a block of code or by itself, or edits of the parent.
    """
    text = sys.stdin.read() if str(file) == "-" else read_source(file)
    return _ask(options, run, CommandKind.ANSWER, (candidate,), text)


@click.command("force")
@click.argument("step", type=click.Choice([str(step) for step in Step]))
@click.argument("run", type=int)
@click.argument("candidate", type=click.IntRange(0))
@click.pass_obj
def force_command(options: Options, step: str, run: int, candidate: int) -> int:
    """Have RUN take a step from CANDIDATE (0 is the root), whatever it would choose itself."""
    return _ask(options, run, CommandKind.FORCE, (candidate,), step)


@click.command("retract")
@click.argument("run", type=int)
@click.argument("command", type=int)
@click.pass_obj
def retract_command(options: Options, run: int, command: int) -> None:
    """Take back COMMAND of RUN, if nobody has answered it yet."""
    with Control(options.settings.db) as control:
        found = control.retract(run, command)
    if found.state is not CommandState.RETRACTED:
        raise CommandFailed(f"command {command} is {found.state} already: {found.answer}")
    click.echo(f"took back command {command} ({found.kind})")


@click.command("add")
@click.argument("run", type=int)
@click.argument("parent", type=int)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.pass_obj
def add_command(options: Options, run: int, parent: int, file: Path) -> None:
    """Enter the kernel in FILE as a child of PARENT (0 is the root) of RUN; it needs no approval."""
    source = read_source(file)
    with Control(options.settings.db) as control:
        number = control.add_human(run, parent or None, source, f"by hand: {file.name}")
    with Reader(options.settings.db) as reader:
        overview = find_run(reader, run)
    alive = overview.engine is not None and overview.engine.alive and not overview.run.state.ended
    waits = "" if alive else f"; no engine works on the run, so it waits for: kernelgrove resume {run}"
    click.echo(f"candidate {number} of run {run} is queued for the judge{waits}")
