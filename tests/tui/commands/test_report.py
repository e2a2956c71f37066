"""The report for the morning after: what it says, and which moments it understands."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from engine.records import CommandKind
from engine.store.control import Control
from tests.tui.commands.conftest import Call
from tests.tui.grove import Grove
from tui.commands.context import CommandFailed
from tui.commands.report import since_when

NOW = datetime(2026, 4, 2, 8, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "before"),
    [
        ("8h", timedelta(hours=8)),
        ("90m", timedelta(minutes=90)),
        ("2d", timedelta(days=2)),
        ("08:00", timedelta(minutes=30)),
        ("19:00", timedelta(hours=13, minutes=30)),
        ("2026-04-01", timedelta(hours=32, minutes=30)),
        ("2026-04-01 19:00", timedelta(hours=13, minutes=30)),
    ],
)
def test_moments_are_read_as_people_write_them(text: str, before: timedelta) -> None:
    assert since_when(text, NOW) == (NOW - before).timestamp()


@pytest.mark.parametrize("text", ["yesterdayish", "25:00", "2027-01-01", ""])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(CommandFailed, match="--since"):
        since_when(text, NOW)


def test_the_report_says_what_came_of_the_night(call: Call, db: Path) -> None:
    grove = Grove(db)
    grove.plant()
    grove.store.note("the machine failed, 3 is tried again")
    with Control(db) as control:
        control.ask(grove.run, CommandKind.PIN, 1)
        control.ask(grove.run, CommandKind.PIN, 99)
    grove.store.obey()
    grove.close(release=True)
    lines = call("report").out.splitlines()
    assert lines[0].startswith("# Searches since ")
    assert f"| {grove.run} | softmax | running | 7/40 | none | 1.88x |" in lines
    text = "\n".join(lines)
    assert "- 7 candidates judged, 5 correct" in text
    assert "- best: candidate 6, 1.88x eager (31.1 us): 4 rows a program, 4 warps" in text
    assert "- came to nothing: 1 wrong result, 1 does not compile, 1 duplicate" in text
    assert f"- **waiting for approval**: `kernelgrove approve {grove.run} 9 10`" in text
    assert f"- **no engine works on it**: `kernelgrove resume {grove.run}`" in text
    assert f"- refused pin: run {grove.run} has no candidate 99" in text
    assert "- asked by people: 1 pin" in text
    assert "- noted: the machine failed, 3 is tried again" in text
    bests = [line.split(" | ")[1:3] for line in lines if line.startswith("| 2") and line.count("|") == 5]
    assert bests == [["1", "1.21x"], ["2", "1.42x"], ["6", "1.88x"]]
    assert "\x1b" not in text


def test_what_lies_before_the_moment_is_the_best_before(call: Call, db: Path) -> None:
    grove = Grove(db)
    grove.grow(None, "first | of `all`", 1.5)
    connection = sqlite3.connect(db)
    with connection:
        connection.execute("UPDATE events SET at = at - 7200")
    connection.close()
    grove.grow(None, "second *one*", 2.0)
    grove.close(release=True)
    out = call("report", str(grove.run), "--since", "1h").out
    assert "| 1.50x | 2.00x |" in out
    assert "1 candidate judged" in out
    assert r"second \*one\*" in out
    assert "first" not in out


def test_nothing_happened(call: Call, db: Path) -> None:
    with Control(db):
        pass
    assert call("report", "--since", "8h").out.endswith("Nothing happened.\n")
    assert call("report", "7").code == 2
    assert call("report", "--since", "soon").code == 2
