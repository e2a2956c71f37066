"""The cockpit in a real terminal: tmux draws it, and tells what was drawn."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.records import CandidateState
from engine.store.reader import Reader
from tests.tui.grove import Grove

ROOT = Path(__file__).parents[2]
WAIT_S = 30.0
SHELL = "PS1='ready$ ' exec bash --norc --noprofile"

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")


class Terminal:
    """One window of a tmux server of its own."""

    def __init__(self, socket: Path, width: int, height: int) -> None:
        self._socket = socket
        self._tmux("-f", os.devnull, "new-session", "-d", "-x", str(width), "-y", str(height), SHELL)
        self.until(lambda: "ready$" in self.screen(), "a shell")

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", str(self._socket), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=10).stdout

    def screen(self) -> str:
        """What is seen."""
        return self._tmux("capture-pane", "-p")

    def keys(self, *names: str) -> None:
        """Types keys by tmux's names for them."""
        self._tmux("send-keys", *names)

    def type(self, text: str) -> None:
        """Types a text as it is."""
        self._tmux("send-keys", "-l", text)

    def resize(self, width: int, height: int) -> None:
        """Changes the size."""
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def alternate(self) -> bool:
        """Whether a full-screen program has the terminal."""
        return self._tmux("display", "-p", "#{alternate_on}").strip() == "1"

    def pid(self) -> int:
        """The shell's process."""
        return int(self._tmux("display", "-p", "#{pane_pid}"))

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Looks again and again until a condition holds."""
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline, f"never seen: {what}\n{self.screen()}"
            time.sleep(0.05)

    def sees(self, text: str) -> None:
        """Waits until a text is on the screen."""
        self.until(lambda: text in self.screen(), text)

    def cockpit(self, db: Path, run: int) -> None:
        """Starts the cockpit on a run."""
        call = f"run_cockpit(Path({str(db)!r}), run={run})"
        code = f"from pathlib import Path; from tui.app import run_cockpit; exit({call})"
        self.type(f"PYTHONPATH={shlex.quote(str(ROOT))} {shlex.quote(sys.executable)} -c {shlex.quote(code)}")
        self.keys("Enter")
        self.sees("online softmax")

    def end(self) -> None:
        """Ends the server and what runs in it."""
        self._tmux("kill-server")


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    opened = Terminal(tmp_path_factory.mktemp("t") / "s", 80, 24)
    yield opened
    opened.end()


def test_walking_steering_and_leaving_in_a_real_terminal(terminal: Terminal, grove: Grove, db: Path) -> None:
    terminal.cockpit(db, grove.run)
    terminal.keys("j", "Enter")
    terminal.sees("2 against parent 1")
    terminal.sees("BLOCK=258")
    terminal.keys("BTab", "b", "x")
    terminal.sees("Prune 6 and what grew from it: 4 in all")
    terminal.keys("y")
    terminal.sees("asked the engine: prune 6")
    grove.store.obey()
    terminal.sees("pruned 6 and the 3 that grew from it")
    terminal.keys("3")
    terminal.sees("Waiting for approval")
    terminal.keys("a")
    terminal.sees("approve")
    terminal.until(lambda: bool(_queued(db, grove.run)), "the approval in the database")
    grove.store.obey()
    assert grove.state(9) is CandidateState.QUEUED
    terminal.keys("4", "n")
    terminal.sees("New rule")
    terminal.keys("Escape")
    terminal.sees("arange-power-of-two")
    terminal.resize(200, 50)
    terminal.sees("Probe: must fail")
    terminal.keys("2")
    terminal.sees("Best so far")
    terminal.keys("Q")
    terminal.sees("The search goes on: run 1 goes on without this screen")
    assert not terminal.alternate()
    terminal.cockpit(db, grove.run)
    terminal.sees("pruned")


def _queued(db: Path, run: int) -> list[object]:
    with Reader(db) as reader:
        return [command for command in reader.commands(run) if command.kind == "approve"]


@pytest.mark.parametrize(
    ("number", "says"), [(signal.SIGTERM, "ready$"), (signal.SIGHUP, "ready$"), (signal.SIGKILL, "ended by signal 9")]
)
def test_a_signal_leaves_the_terminal_usable(
    terminal: Terminal, grove: Grove, db: Path, number: signal.Signals, says: str
) -> None:
    terminal.cockpit(db, grove.run)
    [guardian] = children(terminal.pid())
    [screen] = children(guardian)
    os.kill(screen, number)
    terminal.until(lambda: not terminal.alternate(), "the shell's own screen")
    terminal.sees(says)
    terminal.type("stty -a | tr ' ' '\\n' | grep -cxE 'echo|icanon|isig'; echo status $?")
    terminal.keys("Enter")
    terminal.sees("3\nstatus 0")


def test_a_terminal_that_vanishes_ends_the_cockpit(terminal: Terminal, grove: Grove, db: Path) -> None:
    terminal.cockpit(db, grove.run)
    [guardian] = children(terminal.pid())
    [screen] = children(guardian)
    terminal.end()
    both = [Path(f"/proc/{process}") for process in (guardian, screen)]
    terminal.until(lambda: not any(process.exists() for process in both), "both ended")


def test_bytes_that_make_no_sense_are_survived(terminal: Terminal, grove: Grove, db: Path) -> None:
    terminal.cockpit(db, grove.run)
    terminal._tmux("send-keys", "-H", "ff", "fe", "1b", "5b", "3c", "39", "3b", "ff", "4d", "c3")
    terminal._tmux("send-keys", "-H", "1b", "5b", "3c", "30", "3b", "2d", "31", "3b", "4d")
    terminal.keys("G")
    terminal.keys("Enter")
    terminal.sees("12 against parent 5")
