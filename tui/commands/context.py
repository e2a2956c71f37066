"""What every command shares: the options typed before it, exit codes, and a failure in one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from engine.settings import Settings

EXIT_NOT_CORRECT, EXIT_USAGE, EXIT_MACHINE, EXIT_INTERRUPTED = 1, 2, 3, 130


class CommandFailed(click.ClickException):
    """A failure said in one sentence, with its exit code."""

    def __init__(self, message: str, code: int = EXIT_USAGE) -> None:
        super().__init__(message)
        self.code = code

    def show(self, file: Any = None) -> None:
        """Prints the sentence on stderr."""
        click.echo(f"kernelgrove: {self.message}", err=True)


@dataclass
class Options:
    """What was typed before the command."""

    db: Path | None
    config: Path | None
    ascii: bool
    debug: bool

    @cached_property
    def settings(self) -> Settings:
        """All layers of settings."""
        from engine.settings import load_settings

        flags: dict[str, Any] = {} if self.db is None else {"db": self.db}
        if self.ascii:
            flags["ascii"] = True
        return load_settings(self.config, flags)
