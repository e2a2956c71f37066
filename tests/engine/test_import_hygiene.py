"""Importing the engine is cheap, and torch is loaded only by the processes that need it."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "triton", "textual", "openai")


@pytest.mark.parametrize(
    "module", ["engine", "engine.api", "engine.loop.process", "skills.memory", "tui.commands.search"]
)
def test_no_heavy_module_is_loaded(module: str) -> None:
    program = f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert printed.strip() == "[]"


def test_screens_load_no_torch() -> None:
    program = "import sys, tui.app; print([name for name in ('torch', 'triton') if name in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert printed.strip() == "[]"
