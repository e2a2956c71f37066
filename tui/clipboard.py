"""Copies text out of the terminal: through tmux, else by OSC 52, and always into a file as well."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path


def copies_folder() -> Path:
    """Where copies are kept: `$XDG_CACHE_HOME/kernelgrove/copies`."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "kernelgrove" / "copies"


def copy_text(text: str, name: str, osc52: Callable[[str], None]) -> str:
    """Copies a text and returns a sentence that says how; terminals do not acknowledge, so it says "sent".

    Args:
        text: what to copy.
        name: the name of the file.
        osc52: sends text to the terminal's clipboard.
    """
    file = copies_folder() / name
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8", errors="backslashreplace")
        kept = f"; also in {file}"
    except OSError as error:
        kept = f"; no file was written: {error.strerror}"
    if os.environ.get("TMUX") and _to_tmux(text):
        return f"sent to tmux and its terminal{kept}"
    osc52(text)
    return f"sent to the terminal{kept}"


def _to_tmux(text: str) -> bool:
    """Sets tmux's buffer and (`-w`) the clipboard of the terminal around it."""
    if shutil.which("tmux") is None:
        return False
    try:
        done = subprocess.run(
            ["tmux", "load-buffer", "-w", "-"],
            input=text.encode("utf-8", "backslashreplace"),
            capture_output=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
