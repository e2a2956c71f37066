from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.widgets import Input, TextArea

from engine.events import SkillChanged
from engine.store.control import Control
from engine.store.reader import Reader
from skills.records import Skill, SkillStatus
from tests.tui.grove import Grove
from tests.tui.pilots import Steps, cockpit, text_of, until
from tui.app import Cockpit
from tui.screens.rule_form import RuleForm
from tui.screens.skills import SkillsScreen

FIRST = "arange-power-of-two"


def skill(db: Path, name: str) -> Skill:
    with Reader(db) as reader:
        return reader.skills().get(name)


def changes(db: Path) -> list[str]:
    """What the events say of changes to skills."""
    with Reader(db) as reader:
        return [event.event.change for event in reader.events(None) if isinstance(event.event, SkillChanged)]


@asynccontextmanager
async def opened_skills(
    db: Path, size: tuple[int, int] = (120, 30)
) -> AsyncIterator[tuple[Steps, Cockpit, SkillsScreen]]:
    app = cockpit(db)
    async with app.run_test(size=size) as pilot:
        await pilot.press("4")
        await until(
            pilot, lambda: isinstance(app.screen, SkillsScreen) and app.screen.detail is not None, "a rule is read"
        )
        screen = app.screen
        assert isinstance(screen, SkillsScreen)
        yield pilot, app, screen


def form_of(app: Cockpit) -> RuleForm:
    assert isinstance(app.screen, RuleForm)
    return app.screen


async def test_the_list_and_a_rule_in_full(grove: Grove, db: Path) -> None:
    async with opened_skills(db, (120, 60)) as (pilot, app, _):
        shown = text_of(app)
        assert "5 of 5 in use" in shown
        assert "Probe: must fail" in shown
        assert "power of two elements" in shown
        await pilot.press("j")
        await until(pilot, lambda: "A kernel cannot read a global" in text_of(app), "the next rule")


async def test_rules_that_ship_are_there_before_the_first_run(db: Path) -> None:
    with Control(db):
        pass
    async with opened_skills(db) as (_, app, _screen):
        assert FIRST in text_of(app)


async def test_space_switches_a_rule_off_and_on(grove: Grove, db: Path) -> None:
    async with opened_skills(db) as (pilot, app, _):
        await pilot.press("space")
        await until(pilot, lambda: "switched off, revision 2" in text_of(app), "off")
        assert not skill(db, FIRST).enabled
        await until(pilot, lambda: "4 of 5 in use" in text_of(app), "the list follows")
        await pilot.press("space")
        await until(pilot, lambda: "switched on, revision 3" in text_of(app), "on")
        assert changes(db) == ["switched off", "switched on"]


async def test_retiring_needs_a_reason_and_can_be_taken_back(grove: Grove, db: Path) -> None:
    async with opened_skills(db) as (pilot, app, _):
        await pilot.press("x", "escape")
        await until(pilot, lambda: "nothing was changed" in text_of(app), "Escape changes nothing")
        await pilot.press("x", "enter")
        await until(pilot, lambda: "The reason is empty" in text_of(app), "a reason is needed")
        await pilot.press("x", *"old", "enter")
        await until(pilot, lambda: "retired, revision 2" in text_of(app), "retired")
        assert (skill(db, FIRST).status, skill(db, FIRST).reason) == (SkillStatus.RETIRED, "old")
        await until(pilot, lambda: "1 retired" in text_of(app), "the cursor stays on the rule, which is last now")
        await pilot.press("x")
        await until(pilot, lambda: "retired already" in text_of(app), "once is enough")
        await pilot.press("X")
        await until(pilot, lambda: skill(db, FIRST).status is SkillStatus.UNVERIFIED, "taken back")


async def test_a_new_rule_from_the_form(grove: Grove, db: Path) -> None:
    async with opened_skills(db) as (pilot, app, _):
        await pilot.press("n")
        await until(pilot, lambda: isinstance(app.screen, RuleForm), "the form")
        form = form_of(app)
        await pilot.press(*"never", "minus", *"divide", "minus", *"by", "minus", *"zero")
        assert form.query_one("#field-name", Input).value == "never-divide-by-zero"
        await pilot.press("ctrl+o")
        await until(pilot, lambda: "statement" in text_of(app) and form.is_current, "it says what is missing")
        form.query_one("#field-statement", TextArea).text = "Dividing by zero gives inf: mask the divisor."
        form.query_one("#field-probe", TextArea).text = "import triton"
        await pilot.press("ctrl+o")
        await until(pilot, lambda: "expect is empty" in text_of(app), "it says what else is missing")
        form.query_one("#field-expect", Input).value = "division by zero"
        await pilot.press("ctrl+o")
        await until(pilot, lambda: "never-divide-by-zero added" in text_of(app), "added")
        assert skill(db, "never-divide-by-zero").status is SkillStatus.UNVERIFIED
        assert changes(db) == ["added"]


async def test_a_name_and_a_statement_make_a_rule(grove: Grove, db: Path) -> None:
    async with opened_skills(db) as (pilot, app, _):
        await pilot.press("n")
        await until(pilot, lambda: isinstance(app.screen, RuleForm), "the form")
        await pilot.press(*"wide", "minus", *"rows")
        form_of(app).query_one("#field-statement", TextArea).text = "Rows of 4096 floats want at least 8 warps."
        await pilot.press("ctrl+o")
        await until(pilot, lambda: "wide-rows added" in text_of(app), "added")
        assert skill(db, "wide-rows").probe == ""


async def test_an_edit_makes_a_revision(grove: Grove, db: Path) -> None:
    async with opened_skills(db) as (pilot, app, screen):
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, RuleForm), "the form")
        form_of(app).query_one("#field-scope", Input).value = "triton>=3.6"
        await pilot.press("ctrl+o")
        await until(pilot, lambda: "edited, revision 2" in text_of(app), "edited")
        assert skill(db, FIRST).scope == "triton>=3.6"
        await until(pilot, lambda: screen.detail is not None and screen.detail.skill.revision == 2, "shown anew")


async def test_a_stale_edit_is_refused_and_what_was_typed_stays(grove: Grove, db: Path) -> None:
    async with opened_skills(db) as (pilot, app, _):
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, RuleForm), "the form")
        form = form_of(app)
        form.query_one("#field-scope", Input).value = "mine"
        with Control(db) as control, control.skills() as memory:
            memory.edit(memory.get(FIRST).id, 1, author="somebody", scope="theirs")
        await pilot.press("ctrl+o")
        await until(pilot, lambda: "changed by somebody" in text_of(app), "refused")
        assert form.query_one("#field-scope", Input).value == "mine"
        assert skill(db, FIRST).scope == "theirs"
        await pilot.press("escape")
        await until(pilot, lambda: "Give up what you changed?" in text_of(app), "Escape asks")
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is form, "no is the default")
        await pilot.press("escape", "y")
        await until(pilot, lambda: isinstance(app.screen, SkillsScreen), "given up")


def set_editor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str) -> None:
    script = tmp_path / "editor.py"
    script.write_text(f"import sys, pathlib\npath = pathlib.Path(sys.argv[1])\ntext = path.read_text()\n{body}\n")
    monkeypatch.setenv("EDITOR", f"{sys.executable} {script}")


async def test_the_text_in_an_editor(grove: Grove, db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_editor(monkeypatch, tmp_path, "path.write_text(text.replace('NVIDIA', 'any GPU'))")
    async with opened_skills(db) as (pilot, app, _):
        await pilot.press("E")
        await until(pilot, lambda: "edited, revision 2" in text_of(app), "edited")
        assert "any GPU" in skill(db, FIRST).scope


async def test_a_text_that_is_refused_is_kept_in_its_file(
    grove: Grove, db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_editor(monkeypatch, tmp_path, "path.write_text(text.replace('revision = 1', 'revision = 7') + '# mine [/b]')")
    async with opened_skills(db, (200, 30)) as (pilot, app, _):
        await pilot.press("E")
        await until(pilot, lambda: "Your text is in" in text_of(app), "refused")
        words = text_of(app).splitlines()[-1].split("Your text is in ")[1].split()
        assert Path(words[0]).read_text().endswith("# mine [/b]")
        assert skill(db, FIRST).revision == 1


async def test_one_pane_at_a_time_on_a_small_terminal(grove: Grove, db: Path) -> None:
    async with opened_skills(db, (80, 24)) as (pilot, app, _):
        assert "Probe" not in text_of(app)
        await pilot.press("tab")
        await until(pilot, lambda: "scope" in text_of(app) and "in use" not in text_of(app), "the rule alone")
        await pilot.press("tab")
        await until(pilot, lambda: "in use" in text_of(app), "the list again")
