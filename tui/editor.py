"""Hands a text to the person's own editor and takes it back."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from contextlib import AbstractContextManager, nullcontext
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


def editor_command() -> list[str]:
    """The person's editor: `$VISUAL`, `$EDITOR`, else vi."""
    return shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")


def edit_text(app: App[object], text: str, name: str) -> Edited:
    """Opens a text in the editor; the screen steps aside while it runs."""
    folder = Path(tempfile.mkdtemp(prefix="kernelgrove-"))
    file = folder / name
    file.write_text(text, "utf-8", errors="backslashreplace", newline="\n")
    aside: AbstractContextManager[None] = nullcontext() if app.is_headless else app.suspend()
    command = editor_command()
    try:
        with aside:
            code = subprocess.run([*command, str(file)], check=False).returncode
    except OSError as error:
        return Edited(None, file, f"the editor {command[0]} cannot be started ({error.strerror}); set EDITOR")
    if code != 0:
        return Edited(None, file, f"the editor {command[0]} ended with status {code}; nothing was changed")
    try:
        changed = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return Edited(None, file, f"{file} cannot be read back: {error}")
    return Edited(changed if changed != text and changed.strip() else None, file)
