"""Every action of the run screen, against a real database whose engine this process plays."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.records import CandidateState, Command, CommandKind, CommandState, ProposerKind, RunState, Step
from engine.store.ledger import CallOrder
from engine.store.reader import Reader
from tests.tui.grove import Grove, kernel
from tests.tui.pilots import Steps, opened_run, text_of, until
from tui.asking import prompt_text, without_prompt
from tui.screens.run import RunScreen


def commands(db: Path, run: int) -> list[Command]:
    with Reader(db) as reader:
        return reader.commands(run)


async def asked(pilot: Steps, db: Path, run: int, count: int = 1) -> Command:
    """Waits until so many commands are in the database; returns the newest."""
    await until(pilot, lambda: len(commands(db, run)) == count, f"{count} commands")
    return commands(db, run)[0]


async def at(pilot: Steps, screen: RunScreen, number: int) -> None:
    """Puts the cursor on a candidate and waits until it was read."""
    screen.go_to(number)
    await until(pilot, lambda: screen.detail is not None and screen.detail.wanted.number == number, f"{number} is read")


async def test_approve_is_queued_for_the_engine_and_its_answer_is_said(grove: Grove, db: Path) -> None:
    async with opened_run(db, grove.run) as (pilot, app, screen):
        await at(pilot, screen, 9)
        await pilot.press("a")
        command = await asked(pilot, db, grove.run)
        assert (command.kind, command.candidate, command.state) == (CommandKind.APPROVE, 9, CommandState.QUEUED)
        await until(pilot, lambda: "asked the engine" in text_of(app), "it says that it was asked")
        grove.store.obey()
        await until(pilot, lambda: "approved 9" in text_of(app), "the answer is said")
        assert grove.state(9) is CandidateState.QUEUED


async def test_approving_what_does_not_wait_asks_nothing(grove: Grove, db: Path) -> None:
    async with opened_run(db, grove.run) as (pilot, app, _screen):
        await pilot.press("a")
        await until(pilot, lambda: "does not wait for approval" in text_of(app), "it says why not")
        assert commands(db, grove.run) == []


async def test_reject_asks_for_a_reason_and_escape_asks_nothing(grove: Grove, db: Path) -> None:
    async with opened_run(db, grove.run) as (pilot, app, screen):
        await at(pilot, screen, 10)
        await pilot.press("r")
        await until(pilot, lambda: "Why is 10 rejected?" in text_of(app), "the question")
        await pilot.press("escape")
        await pilot.press("r", *"slow", "enter")
        command = await asked(pilot, db, grove.run)
        assert (command.kind, command.candidate, command.argument) == (CommandKind.REJECT, 10, "slow")
        grove.store.obey()
        await until(pilot, lambda: "rejected 10" in text_of(app), "the answer")
        assert grove.candidate(10).reason == "rejected: slow"


async def test_marked_candidates_are_approved_together(grove: Grove, db: Path) -> None:
    async with opened_run(db, grove.run) as (pilot, app, screen):
        await pilot.press("A")
        await until(pilot, lambda: "nothing is marked" in text_of(app), "nothing is marked")
        for number in (9, 10, 1):
            screen.view.tree.move_to(number)
            await pilot.press("space")
        await until(pilot, lambda: "3 marked" in text_of(app), "the marks are counted")
        await pilot.press("A")
        await asked(pilot, db, grove.run, 2)
        assert {command.candidate for command in commands(db, grove.run)} == {9, 10}


async def test_prune_asks_first_and_only_y_prunes(grove: Grove, db: Path) -> None:
    async with opened_run(db, grove.run) as (pilot, app, screen):
        await at(pilot, screen, 5)
        for no in ("enter", "escape", "n"):
            await pilot.press("x")
            await until(pilot, lambda: "7 in all" in text_of(app), "the size of the subtree")
            await pilot.press(no)
            await until(pilot, lambda: "nothing was done" in text_of(app), "no is the default")
        assert commands(db, grove.run) == []
        await pilot.press("x", "y")
        await asked(pilot, db, grove.run)
        grove.store.obey()
        await until(pilot, lambda: "⊘" in text_of(app), "the subtree is shown as pruned")
        assert grove.candidate(6).pruned
        await pilot.press("x")
        await until(pilot, lambda: "X restores it" in text_of(app), "what is pruned is not pruned again")
        await pilot.press("X")
        await asked(pilot, db, grove.run, 2)
        grove.store.obey()
        await until(pilot, lambda: "⊘" not in text_of(app), "restored")


async def test_pin_and_unpin(grove: Grove, db: Path) -> None:
    async with opened_run(db, grove.run) as (pilot, app, _screen):
        await pilot.press("P")
        assert (await asked(pilot, db, grove.run)).kind is CommandKind.PIN
        grove.store.obey()
        await until(pilot, lambda: "⚑" in text_of(app), "the flag")
        await pilot.press("P")
        assert (await asked(pilot, db, grove.run, 2)).kind is CommandKind.UNPIN


async def test_p_pauses_and_resumes_a_run_that_is_worked_on(grove: Grove, db: Path) -> None:
    async with opened_run(db, grove.run) as (pilot, app, _screen):
        await pilot.press("p")
        assert (await asked(pilot, db, grove.run)).kind is CommandKind.PAUSE
        grove.store.obey()
        await until(pilot, lambda: "paused" in text_of(app).splitlines()[0], "paused")
        await pilot.press("p")
        assert (await asked(pilot, db, grove.run, 2)).kind is CommandKind.RESUME


async def test_p_starts_an_engine_where_none_works(grove: Grove, db: Path) -> None:
    grove.store.release()
    started: list[int] = []

    def start(run: int) -> str:
        started.append(run)
        return f"an engine works on run {run}"

    async with opened_run(db, grove.run, start_engine=start) as (pilot, app, _screen):
        assert "no engine works on this run; p resumes it" in text_of(app)
        await pilot.press("p")
        await until(pilot, lambda: "an engine works on run 1" in text_of(app), "it says so")
        assert started == [grove.run]
        assert commands(db, grove.run) == []


async def test_without_a_way_to_start_engines_p_names_the_command(grove: Grove, db: Path) -> None:
    grove.store.release()
    async with opened_run(db, grove.run) as (pilot, app, _screen):
        await pilot.press("p")
        await until(pilot, lambda: "kernelgrove resume 1" in text_of(app), "the command")


async def test_an_engine_that_cannot_be_started_is_said(grove: Grove, db: Path) -> None:
    grove.store.release()

    def start(run: int) -> str:
        raise OSError("no [/b] space left")

    async with opened_run(db, grove.run, start_engine=start) as (pilot, app, _screen):
        await pilot.press("p")
        await until(pilot, lambda: "no engine was started: no [/b] space left" in text_of(app), "the reason")


async def test_stop_asks_first(grove: Grove, db: Path) -> None:
    async with opened_run(db, grove.run) as (pilot, app, _screen):
        await pilot.press("S", "enter")
        await until(pilot, lambda: "nothing was done" in text_of(app), "no is the default")
        await pilot.press("S", "y")
        assert (await asked(pilot, db, grove.run)).kind is CommandKind.STOP
        grove.store.obey()
        await until(pilot, lambda: grove.store.run().state is RunState.STOPPING, "stopping")


async def test_budget_takes_a_number_and_nothing_else(grove: Grove, db: Path) -> None:
    async with opened_run(db, grove.run) as (pilot, app, _screen):
        await pilot.press("B", "x")
        await until(pilot, lambda: "whole number" in text_of(app), "what is wrong")
        await pilot.press("enter")
        assert commands(db, grove.run) == []
        await pilot.press("B", "ctrl+u", *"75", "enter")
        assert (await asked(pilot, db, grove.run)).argument == "75"
        grove.store.obey()
        await until(pilot, lambda: "7/75" in text_of(app), "the new budget")


async def test_u_takes_back_what_was_not_answered_yet(grove: Grove, db: Path) -> None:
    async with opened_run(db, grove.run) as (pilot, app, _screen):
        await pilot.press("u")
        await until(pilot, lambda: "no command waits" in text_of(app), "nothing to take back")
        await pilot.press("p")
        await asked(pilot, db, grove.run)
        await pilot.press("u")
        await until(pilot, lambda: "took back: pause" in text_of(app), "taken back")
        assert commands(db, grove.run)[0].state is CommandState.RETRACTED


async def test_hints_for_a_candidate_and_for_the_run(grove: Grove, db: Path) -> None:
    async with opened_run(db, grove.run) as (pilot, app, screen):
        await at(pilot, screen, 2)
        await pilot.press("i", *"fewer", "enter")
        command = await asked(pilot, db, grove.run)
        assert (command.kind, command.candidate, command.argument) == (CommandKind.HINT, 2, "fewer")
        await pilot.press("i", "escape")
        await pilot.press("I", *"half", "enter")
        command = await asked(pilot, db, grove.run, 2)
        assert (command.kind, command.candidate, command.argument) == (CommandKind.HINT, None, "half")
        grove.store.obey()
        await until(pilot, lambda: "the hint goes into every proposal" in text_of(app), "the answer")


async def test_a_step_is_forced_and_a_candidate_judged_again(grove: Grove, db: Path) -> None:
    async with opened_run(db, grove.run) as (pilot, app, screen):
        await at(pilot, screen, 6)
        await pilot.press("F", "x")
        assert commands(db, grove.run) == []
        await pilot.press("F", "s")
        command = await asked(pilot, db, grove.run)
        assert (command.kind, command.candidate, command.argument) == (CommandKind.FORCE, 6, "structural")
        await pilot.press("R")
        command = await asked(pilot, db, grove.run, 2)
        assert (command.kind, command.candidate) == (CommandKind.RETEST, 6)
        grove.store.obey()
        await until(pilot, lambda: "6 is judged again" in text_of(app), "the answer")


async def test_e_answers_a_prompt_that_waits(
    grove: Grove, db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", editor(tmp_path, "path.write_text(path.read_text() + 'class ModelNew: ...\\n')"))
    number = grove.store.add_candidate(None, Step.STRUCTURAL, ProposerKind.MANUAL, {})
    messages = [("system", ("Write a kernel.",)), ("user", ("for softmax\n", "and quickly"))]
    grove.store.ledger.begin(CallOrder(number, "manual", "a person", "structural", 1, 1, messages, (), (), 0.0))
    async with opened_run(db, grove.run) as (pilot, _app, screen):
        await until(pilot, lambda: number in screen.view.tree, "the prompt is there")
        screen.go_to(number)
        await pilot.press("e")
        command = await asked(pilot, db, grove.run)
        assert (command.kind, command.candidate, command.argument) == (
            CommandKind.ANSWER,
            number,
            "class ModelNew: ...\n",
        )


def test_a_prompt_is_shown_as_comments_and_left_out_of_the_answer(grove: Grove, db: Path) -> None:
    number = grove.store.add_candidate(None, Step.STRUCTURAL, ProposerKind.MANUAL, {})
    assert prompt_text(db, grove.run, number) == "# the prompt is not written yet\n\n"
    messages = [("system", ("Write a kernel.",)), ("user", ("for softmax\n\n", "and quickly"))]
    grove.store.ledger.begin(CallOrder(number, "manual", "a person", "structural", 1, 1, messages, (), (), 0.0))
    shown = prompt_text(db, grove.run, number)
    assert shown == "# Write a kernel.\n#\n# for softmax\n#\n# and quickly\n\n"
    assert without_prompt(shown + "import torch\n# mine\n") == "import torch\n# mine\n"


def editor(tmp_path: Path, body: str) -> str:
    """An editor that is a Python script; `path` is the file it is given."""
    script = tmp_path / "editor.py"
    script.write_text(f"import sys, pathlib\npath = pathlib.Path(sys.argv[1])\n{body}\n")
    return f"{sys.executable} {script}"


async def test_e_makes_a_child_of_what_was_saved(
    grove: Grove, db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", editor(tmp_path, "path.write_text(path.read_text() + '# mine\\n')"))
    async with opened_run(db, grove.run) as (pilot, app, screen):
        await pilot.press("e")
        await until(pilot, lambda: 13 in screen.view.tree, "the child appears")
        mine = grove.candidate(13)
        assert (mine.parent, mine.proposer, mine.state) == (1, "human", CandidateState.QUEUED)
        assert grove.store.source(13).endswith("# mine\n")
        assert "your kernel is candidate 13" in text_of(app)


@pytest.mark.parametrize(
    ("body", "says"), [("", "nothing was changed"), ("sys.exit(3)", "ended with status 3"), (None, "cannot be started")]
)
async def test_e_makes_nothing_of_a_file_that_was_not_changed(
    grove: Grove, db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str | None, says: str
) -> None:
    monkeypatch.setenv("EDITOR", str(tmp_path / "absent") if body is None else editor(tmp_path, body))
    async with opened_run(db, grove.run) as (pilot, app, _screen):
        await pilot.press("e")
        await until(pilot, lambda: says in text_of(app), says)
        assert len(grove.store.candidates()) == 12


async def test_y_copies_into_the_terminal_and_a_file(grove: Grove, db: Path, tmp_path: Path) -> None:
    async with opened_run(db, grove.run) as (pilot, app, screen):
        await at(pilot, screen, 6)
        copies = tmp_path / "cache" / "kernelgrove" / "copies"
        wanted: dict[str, tuple[str, Callable[[str], bool]]] = {
            "i": ("run1-6.txt", lambda text: text == "1:6"),
            "c": ("run1-6.py", lambda text: text == kernel("4 rows a program, 4 warps", 262)),
            "d": ("run1-6.diff", lambda text: text.startswith("--- candidate 5\n+++ candidate 6\n")),
            "l": ("run1-6.log", lambda text: "correct, 1.88x in 31.1 us" in text),
        }
        for key, (name, right) in wanted.items():
            await pilot.press("y")
            await until(pilot, lambda: "Copy:" in text_of(app), "the question")
            await pilot.press(key)
            await until(pilot, lambda name=name: (copies / name).exists(), name)  # type: ignore[misc]
            assert right((copies / name).read_text())
            assert right(app.clipboard)
        await pilot.press("y", "escape")
        assert "sent" in text_of(app) or "Copy:" not in text_of(app)
