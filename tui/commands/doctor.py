"""`doctor`: what this machine can do, and what to set."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from engine.judging.doctor import Layer, State
from tui.commands.context import EXIT_MACHINE, CommandFailed, Options
from tui.commands.output import print_json

_MARKS = {State.GOOD: "ok", State.LIMITED: "note", State.MISSING: "missing", State.OFF: "off"}


@click.command("doctor")
@click.option("--python", type=click.Path(path_type=str), help="The interpreter that kernels are judged in.")
@click.option("--arch", help="What a machine without a GPU compiles for, such as sm_90.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
def doctor_command(options: Options, python: str | None, arch: str | None, as_json: bool) -> int:
    """Say what this machine can do and what to set; exits with 3 where it cannot judge at all."""
    from engine.judging import doctor
    from engine.settings import parse_run_settings

    typed = {name: value for name, value in (("python", python), ("arch", arch)) if value is not None}
    settings = parse_run_settings({**options.settings.run.model_dump(), **typed})
    tools = doctor.toolchain(settings.python, settings.arch)
    able = doctor.can_judge(tools)
    try:
        sandbox = asyncio.run(doctor.layers(settings.python)) if able else []
    except ValueError as error:
        raise CommandFailed(str(error)) from error
    parts = {
        "toolchain": tools,
        "sandbox": sandbox,
        "database": list(_database(options.settings.db)),
        "terminal": list(_terminal()),
    }
    if as_json:
        print_json({"can_judge": able, **{name: [asdict(layer) for layer in found] for name, found in parts.items()}})
    else:
        _print(parts)
        click.echo("this machine can judge" if able else "this machine cannot judge; see above")
    return 0 if able else EXIT_MACHINE


def _print(parts: dict[str, list[Layer]]) -> None:
    for name, found in parts.items():
        if found:
            click.echo(name)
        for layer in found:
            click.echo(f"  {_MARKS[layer.state]:<8}{layer.name:<15}{layer.detail}")
        for advice in dict.fromkeys(layer.advice for layer in found if layer.advice):
            click.echo(f"          to do: {advice}")


def _database(db: Path) -> Iterator[Layer]:
    from engine.store.database import ALLOW_NETWORK_VARIABLE, StoreError, file_system_of, refuse_network_file_system

    folder = db.absolute().parent
    if not folder.is_dir():
        yield Layer(
            "location", State.MISSING, f"the folder {folder} does not exist", "create it, or choose another --db"
        )
        return
    kind = file_system_of(folder.resolve())
    try:
        refuse_network_file_system(db)
    except StoreError as error:
        advice = f"choose a local --db, or set {ALLOW_NETWORK_VARIABLE}=1 if only one machine uses it"
        yield Layer("location", State.MISSING, str(error).partition(";")[0], advice)
        return
    there = "" if db.exists() else ", made at first use"
    if not os.access(db if db.exists() else folder, os.W_OK):
        yield Layer("location", State.MISSING, f"{db.absolute()} cannot be written", "choose another --db")
    else:
        yield Layer("location", State.GOOD, f"{db.absolute()} on {kind or 'an unknown file system'}{there}")


def _terminal() -> Iterator[Layer]:
    if not sys.stdout.isatty():
        yield Layer("screen", State.LIMITED, "no terminal here; the cockpit needs one, commands do not")
        return
    yield _colours()
    encoding = (sys.stdout.encoding or "").lower()
    if encoding.replace("-", "") != "utf8":
        yield Layer(
            "characters",
            State.LIMITED,
            f"the terminal's encoding is {encoding}",
            "set LANG to one with UTF-8, or use --ascii",
        )
    yield _clipboard()


def _colours() -> Layer:
    term = os.environ.get("TERM", "")
    if os.environ.get("NO_COLOR"):
        return Layer("colours", State.OFF, "NO_COLOR is set", "unset NO_COLOR")
    if term in ("", "dumb"):
        return Layer(
            "colours", State.MISSING, f"TERM is {term!r}", "set TERM to what your terminal is, such as xterm-256color"
        )
    if os.environ.get("COLORTERM") in ("truecolor", "24bit"):
        return Layer("colours", State.GOOD, f"millions ({term})")
    return Layer("colours", State.LIMITED, f"256 at most ({term})", "set COLORTERM=truecolor if your terminal has them")


def _clipboard() -> Layer:
    """Copying goes through tmux where it runs, else to the terminal by OSC 52, which does not acknowledge."""
    if not os.environ.get("TMUX"):
        return Layer("clipboard", State.GOOD, "by OSC 52, where the terminal allows it; copies are also kept in files")
    value = _tmux_option("set-clipboard")
    if value in ("on", "external"):
        return Layer("clipboard", State.GOOD, f"through tmux (set-clipboard {value})")
    detail = f"tmux keeps copies to itself (set-clipboard {value or 'unknown'})"
    return Layer("clipboard", State.LIMITED, detail, "run: tmux set -g set-clipboard on")


def _tmux_option(name: str) -> str:
    tmux = shutil.which("tmux")
    if tmux is None:
        return ""
    try:
        done = subprocess.run([tmux, "show", "-gsv", name], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
