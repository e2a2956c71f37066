"""What a candidate compiled, kept for the next process that judges the very same source.

Never shared between different sources: a compiled kernel comes from an untrusted process, and is good only
for the text that it came from.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from pathlib import Path

MOST_SOURCES = 32
"""Sources whose kernels are kept; the one used longest ago goes first."""

CACHES = ("triton", "compile/triton")
"""Where Triton keeps what it compiles, in a candidate's own folder: for the device, and ahead of time."""


class Compiled:
    """Compiled kernels by source text, in a folder of the engine's that no candidate can reach. Thread-safe."""

    def __init__(self, folder: Path, most: int = MOST_SOURCES) -> None:
        self._folder = folder
        self._most = most
        self._known: dict[str, Path] = {}
        self._lock = threading.Lock()

    def lend(self, source: str, folder: Path) -> bool:
        """Puts a copy of what is kept for a source into a candidate's folder; says whether there was any."""
        key = _key(source)
        with self._lock:
            kept = self._known.pop(key, None)
            if kept is None:
                return False
            self._known[key] = kept
            shutil.copytree(kept, folder, symlinks=True, dirs_exist_ok=True)
            return True

    def keep(self, source: str, folder: Path) -> None:
        """Takes over what a candidate that has ended left in its folder."""
        caches = [name for name in CACHES if (folder / name).resolve() == folder.resolve() / name]
        caches = [name for name in caches if (folder / name).is_dir()]
        if not caches:
            return
        key = _key(source)
        kept = self._folder / key
        with self._lock:
            shutil.rmtree(kept, ignore_errors=True)
            for name in caches:
                (kept / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                shutil.move(folder / name, kept / name)
            self._known.pop(key, None)
            self._known[key] = kept
            while len(self._known) > self._most:
                shutil.rmtree(self._known.pop(next(iter(self._known))), ignore_errors=True)


def _key(source: str) -> str:
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()
