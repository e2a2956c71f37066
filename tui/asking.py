"""What a person does to a run, each as one short transaction; called in threads, returns what to say."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.records import Command, CommandKind, CommandState
from engine.store.control import Control
from engine.store.database import StoreError
from engine.store.reader import Reader
from tui.state.words import Tone


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence for the person; `command` is the id of a command that still waits for its answer."""

    text: str
    tone: Tone = Tone.ACCENT
    command: int | None = None


def _plainly(action: Callable[[], Said]) -> Said:
    try:
        return action()
    except (StoreError, sqlite3.Error, KeyError) as error:
        return Said(str(error.args[0]) if error.args else str(error), Tone.BAD)


def told(command: Command) -> Said:
    """What a command's state means for the person who gave it."""
    about = f" {command.candidate}" if command.candidate else ""
    match command.state:
        case CommandState.QUEUED:
            return Said(
                command.answer or f"asked the engine: {command.kind}{about} (u takes it back)", command=command.id
            )
        case CommandState.REFUSED:
            return Said(f"refused: {command.answer}", Tone.BAD)
        case _:
            return Said(command.answer or f"{command.kind}{about} {command.state}", Tone.GOOD)


def ask(db: Path, run: int, kind: CommandKind, candidate: int | None = None, argument: str = "") -> Said:
    """Asks something of a run."""

    def action() -> Said:
        with Control(db) as control:
            return told(control.ask(run, kind, candidate, argument))

    return _plainly(action)


def ask_each(db: Path, wanted: list[tuple[int, int]], kind: CommandKind) -> Said:
    """Asks the same of several candidates, given as run and number."""

    def action() -> Said:
        with Control(db) as control:
            answers = [control.ask(run, kind, number) for run, number in wanted]
        refused = [command for command in answers if command.state is CommandState.REFUSED]
        if refused:
            return Said(f"{len(refused)} of {len(wanted)} refused: {refused[0].answer}", Tone.BAD)
        last = told(answers[-1])
        return Said(f"{kind} for {len(wanted)} candidates: {last.text}", last.tone, last.command)

    return _plainly(action) if wanted else Said("nothing is marked; Space marks", Tone.WARN)


def take_back(db: Path, run: int) -> Said:
    """Takes the newest unanswered command back."""

    def action() -> Said:
        with Reader(db) as reader:
            queued = reader.commands(run, CommandState.QUEUED, limit=1)
        if not queued:
            return Said("no command waits for an answer", Tone.WARN)
        with Control(db) as control:
            command = control.retract(run, queued[0].id)
        about = f" {command.candidate}" if command.candidate else ""
        if command.state is CommandState.RETRACTED:
            return Said(f"took back: {command.kind}{about}", Tone.GOOD)
        return Said(f"too late: {command.kind}{about} is {command.state}", Tone.WARN)

    return _plainly(action)


def add_own(db: Path, run: int, parent: int | None, source: str, idea: str) -> Said:
    """Enters a person's own kernel as a child."""

    def action() -> Said:
        with Control(db) as control:
            number = control.add_human(run, parent, source, idea)
        return Said(f"your kernel is candidate {number} and waits for the judge", Tone.GOOD)

    return _plainly(action)


_PROMPT = "# "


def prompt_text(db: Path, run: int, number: int) -> str:
    """The prompt that waits for a person's answer, as comments to write the answer below."""
    with Reader(db) as reader:
        calls = reader.calls(run, number)
        parts = [text for _, text in reader.prompt(calls[-1].id)] if calls else ["the prompt is not written yet"]
    lines = "\n\n".join(parts).splitlines()
    return "".join(f"{_PROMPT}{line}".rstrip() + "\n" for line in lines) + "\n"


def without_prompt(text: str) -> str:
    """What was written below a prompt."""
    lines = text.splitlines(keepends=True)
    first = next((index for index, line in enumerate(lines) if not line.startswith(_PROMPT.strip())), len(lines))
    return "".join(lines[first:]).lstrip("\n")
