"""Hands a text to the person's own editor and takes it back."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from textual.app import App


@dataclass(frozen=True, slots=True)
class Edited:
    """What came back: the `text` if it was changed and saved; `file` is where it is, also after a failure."""

    text: str | None
    file: Path
    problem: str = ""

    def forget(self) -> None:
        """Removes the file, once its text is kept elsewhere."""
        self.file.unlink(missing_ok=True)
        with suppress(OSError):  # the editor may have left a file of its own beside it
            self.file.parent.rmdir()


def editor_command() -> list[str]:
    """The person's editor: `$VISUAL`, `$EDITOR`, else vi.

    Raises:
        ValueError: The variable has a quote that is not closed.
    """
    return shlex.split((os.environ.get("VISUAL") or os.environ.get("EDITOR") or "").strip() or "vi")


def _run_editor(file: Path) -> str:
    """Runs the editor on a file and waits for it.

    Returns:
        What went wrong, or nothing.
    """
    try:
        command = editor_command()
    except ValueError as error:
        return f"EDITOR is not a command line ({error}); set it again"
    try:
        code = subprocess.run([*command, str(file)], check=False).returncode
    except OSError as error:
        return f"the editor {command[0]} cannot be started ({error.strerror}); set EDITOR"
    return f"the editor {command[0]} ended with status {code}; nothing was changed" if code else ""


def edit_text(app: App[object], text: str, name: str) -> Edited:
    """Opens a text in the editor; the screen steps aside while it runs."""
    folder = Path(tempfile.mkdtemp(prefix="kernelgrove-"))
    file = folder / name
    file.write_text(text, "utf-8", errors="backslashreplace", newline="\n")
    aside: AbstractContextManager[None] = nullcontext() if app.is_headless else app.suspend()
    with aside:  # nothing may be raised in here: the screen comes back only when the block ends by itself
        problem = _run_editor(file)
    if problem:
        return Edited(None, file, problem)
    try:
        changed = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return Edited(None, file, f"{file} cannot be read back: {error}")
    return Edited(changed if changed != text and changed.strip() else None, file)
