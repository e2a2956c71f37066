"""The `kernelgrove` command: its options, where its subcommands are, and which errors are said plainly."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import click

from engine import __version__
from tui.commands.context import EXIT_INTERRUPTED, EXIT_MACHINE, EXIT_USAGE, CommandFailed, Options

_COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("search", "Grow kernels for a built-in task and watch."),
    "run": ("search", "Start a search on a task."),
    "attach": ("look", "Open the cockpit on a run."),
    "runs": ("look", "List the runs."),
    "status": ("look", "Say how a run stands."),
    "report": ("report", "Say in Markdown what happened since a moment."),
    "show": ("look", "Show a candidate: verdict, source, diff, log, why."),
    "pause": ("steer", "Pause a search."),
    "resume": ("steer", "Let a search go on, with a new engine if need be."),
    "stop": ("steer", "End a search."),
    "approve": ("steer", "Let waiting candidates be judged."),
    "reject": ("steer", "Turn waiting candidates down."),
    "prune": ("steer", "Take candidates and what grew from them out of a search."),
    "restore": ("steer", "Bring pruned candidates back."),
    "pin": ("steer", "Mark candidates."),
    "unpin": ("steer", "Take marks away."),
    "budget": ("steer", "Change how many candidates a search may judge."),
    "hint": ("steer", "Give a search advice that its proposals are shown."),
    "force": ("steer", "Have a search take a step at a candidate."),
    "answer": ("steer", "Answer a prompt that waits for you."),
    "retest": ("steer", "Judge candidates again."),
    "retract": ("steer", "Take back a command that is not answered yet."),
    "add": ("steer", "Enter your own kernel as a child."),
    "eval": ("judge", "Judge candidates, outside any search."),
    "audit": ("judge", "Say whether a task can tell right from wrong."),
    "tasks": ("look", "List the built-in tasks."),
    "doctor": ("doctor", "Say what this machine can do and what to set."),
    "skills": ("skills", "Look at and change the skill memory."),
}


class _LazyGroup(click.Group):
    """A group that imports a command's module when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"tui.commands.{_COMMANDS[cmd_name][0]}")
        command = getattr(module, f"{cmd_name}_command")
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(cls=_LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--db", type=click.Path(dir_okay=False, path_type=Path), help="The database; ./runs.db by default.")
@click.option("--config", type=click.Path(path_type=Path), help="The settings file, instead of ./kernelgrove.toml.")
@click.option("--ascii", is_flag=True, help="Draw with ASCII characters only.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="kernelgrove")
@click.pass_context
def kernelgrove(context: click.Context, db: Path | None, config: Path | None, ascii: bool, debug: bool) -> None:  # noqa: A002
    """Grow fast GPU kernels, and watch them grow.

    Without a command, opens the cockpit on the database.
    """
    context.obj = Options(db, config, ascii, debug)
    if context.invoked_subcommand is None:
        from tui.commands.look import open_cockpit

        context.exit(open_cockpit(context.obj, None))


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line and leaves with its exit code."""
    typed = sys.argv[1:] if arguments is None else arguments
    try:
        code = kernelgrove.main(typed, prog_name="kernelgrove", standalone_mode=False)
    except CommandFailed as failure:
        failure.show()
        sys.exit(failure.code)
    except click.ClickException as error:
        CommandFailed(error.format_message()).show()
        sys.exit(EXIT_USAGE)
    except click.Abort:
        sys.exit(EXIT_INTERRUPTED)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        plain = _plain(error)
        if plain is None or "--debug" in typed:
            raise
        plain.show()
        sys.exit(plain.code)
    sys.exit(code if isinstance(code, int) else 0)


def _plain(error: Exception) -> CommandFailed | None:
    """The sentence and exit code of an error that a person can do something about."""
    import sqlite3

    from engine.judging.facts import MachineError
    from engine.loop.launch import LaunchError
    from engine.settings import SettingsError
    from engine.store.database import StoreError
    from engine.tasks.catalogue import TaskError
    from skills.errors import SkillError

    if isinstance(error, (TaskError, SettingsError, SkillError)):
        return CommandFailed(str(error), EXIT_USAGE)
    if isinstance(error, (MachineError, StoreError, LaunchError)):
        return CommandFailed(str(error), EXIT_MACHINE)
    if isinstance(error, sqlite3.OperationalError):
        return CommandFailed(
            f"the database cannot be used: {error}; if another program holds it, close that and retry", EXIT_MACHINE
        )
    if isinstance(error, KeyError) and error.args and " " in str(error.args[0]):
        return CommandFailed(str(error.args[0]), EXIT_USAGE)
    return None
