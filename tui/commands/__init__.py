"""The command line. Commands are loaded when they are called, so that `--help` is quick."""

from tui.commands.group import main

__all__ = ["main"]
