"""An installed wheel works as well as the checkout: tasks, rules and styles are inside."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the unpacked wheel, built from a copy so that the checkout stays clean."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "copy"
    subprocess.run(["git", "-C", str(REPOSITORY), "checkout-index", "--all", f"--prefix={copy}/"], check=True)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(copy)],
        check=True,
    )
    (wheel,) = folder.glob("kernelgrove-*.whl")
    target = folder / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def call(installed: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    program = f"from tui.commands import main; main({list(arguments)!r})"
    finished = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=installed.parent,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return finished.stdout


def test_tasks_and_skills_come_from_inside_the_wheel(installed: Path) -> None:
    assert str(installed) in call(installed, "tasks", "--json")
    assert "arange-power-of-two" in call(installed, "skills", "list")


def test_the_wheel_holds_styles_rules_prompts_prices_and_the_licence(installed: Path) -> None:
    names = {path.relative_to(installed).as_posix() for path in installed.rglob("*") if path.is_file()}
    assert any(name.endswith(".tcss") for name in names)
    assert sum(name.startswith("skills/rules/") and name.endswith(".toml") for name in names) >= 5
    assert sum(name.startswith("engine/proposing/prompts/") for name in names) >= 5
    assert "engine/proposing/prices.toml" in names
    assert any(name.endswith("LICENSE") for name in names)
    assert not any(name.startswith(("tests/", "benchmarks/")) for name in names)
