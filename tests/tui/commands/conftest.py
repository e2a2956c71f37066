from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tui.commands import main


@dataclass(frozen=True)
class Outcome:
    """What a command printed and its exit code."""

    code: int
    out: str
    err: str


Call = Callable[..., Outcome]


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def call(db: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """Runs `kernelgrove` in this process, in an empty folder, on the test's database."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as leaving:
            main(["--db", str(db), *arguments])
        printed = capsys.readouterr()
        code = leaving.value.code
        assert isinstance(code, int)
        return Outcome(code, printed.out, printed.err)

    return run
