"""A form for one rule. What was typed stays in it until it is stored or the person gives it up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input, Static, TextArea

from skills.records import STAGES, Rule, Skill, SkillKind
from tui.screens.prompts import yes_or_no
from tui.state.words import clean
from tui.teaching import Taught

FIELDS: tuple[tuple[str, str, int], ...] = (
    ("name", "name: short, with hyphens", 1),
    ("statement", "statement: what fails, where, and what to write instead", 3),
    ("kind", f"kind: {' or '.join(SkillKind)}", 1),
    ("scope", "scope: versions and architecture", 1),
    ("stage", f"stage where breaking it shows: {', '.join(STAGES)}", 1),
    ("expect", "expect: part of the message that the probe must fail with", 1),
    ("pattern", "pattern: ast-grep, finds breaches in kernels; may be empty", 3),
    ("probe", "probe: a module whose kernel must fail", 12),
    ("counter_probe", "counter-probe: the repaired module, which must pass", 12),
)
"""Name, explanation and height of each field."""


class RuleForm(ModalScreen[Taught | None]):
    """Asks for a rule's fields and stores them; stays open with a sentence when that is refused."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+o,f2", "store", "store", priority=True),
        Binding("escape", "cancel", "cancel"),
    ]

    AUTO_FOCUS = ""

    class Stored(Message):
        """A thread has tried to store the rule."""

        def __init__(self, taught: Taught) -> None:
            super().__init__()
            self.taught = taught

    def __init__(self, title: str, rule: Rule, store: Callable[[Rule], Taught]) -> None:
        """Prepares the form.

        Args:
            title: what the form is for.
            rule: what stands in it at first; its revision is the one that an edit starts from.
            store: stores a rule; called in a thread.
        """
        super().__init__()
        self._title, self._rule, self._store = title, rule, store

    def compose(self) -> ComposeResult:
        """The fields under one another."""
        with Vertical(id="form"):
            yield Static(self._title, markup=False, id="form-title")
            with VerticalScroll(id="form-fields", can_focus=False):
                for name, explanation, height in FIELDS:
                    value = str(getattr(self._rule, name))
                    with Vertical(classes="form-field"):
                        yield Static(explanation, markup=False, classes="form-label")
                        if height == 1:
                            line = Input(value, id=f"field-{name}", compact=True, select_on_focus=False)
                            line.cursor_blink = False
                            yield line
                        else:
                            area = TextArea(value, id=f"field-{name}", compact=True, tab_behavior="focus")
                            area.cursor_blink = False
                            area.styles.height = height
                            yield area
            yield Static("", markup=False, id="form-problem")
            yield Static(" ctrl+o store   Tab next field   Esc give up", markup=False, id="form-keys")

    def on_mount(self) -> None:
        """Starts in the first field; typing replaces the name that stands in for that of a new rule."""
        name = self.query_one("#field-name", Input)
        name.focus(scroll_visible=False)
        if self._rule.revision is None:
            name.select_all()

    def on_descendant_focus(self) -> None:
        """Keeps the explanation of the field in sight."""
        if self.focused is not None and self.focused.parent is not None:
            group = self.focused.parent
            assert isinstance(group, Widget)
            self.query_one("#form-fields").scroll_to_widget(group, animate=False)

    def on_input_submitted(self) -> None:
        """Enter goes to the next field."""
        self.focus_next()

    def rule(self) -> Rule:
        """The rule as it stands in the form.

        Raises:
            ValueError: the kind is none.
        """
        kind = self._value("kind").strip()
        if kind not in tuple(SkillKind):
            raise ValueError(f"the kind is {clean(kind) or 'empty'}: write {' or '.join(SkillKind)}")
        return Rule(
            name=self._value("name").strip(),
            statement=self._value("statement").strip(),
            kind=SkillKind(kind),
            scope=self._value("scope"),
            stage=self._value("stage").strip(),
            pattern=self._value("pattern"),
            probe=self._value("probe"),
            counter_probe=self._value("counter_probe"),
            expect=self._value("expect"),
            revision=self._rule.revision,
        )

    def _value(self, name: str) -> str:
        field = self.query_one(f"#field-{name}")
        return field.text if isinstance(field, TextArea) else str(getattr(field, "value", ""))

    @property
    def _changed(self) -> bool:
        return any(self._value(name) != str(getattr(self._rule, name)) for name, _, _ in FIELDS)

    def action_store(self) -> None:
        """Stores the rule in a thread, since a commit may have to wait."""
        try:
            rule = self.rule()
        except ValueError as error:
            self._say(str(error))
            return
        self.run_worker(partial(self._store_in_thread, rule), thread=True, exit_on_error=False, group="storing")

    def _store_in_thread(self, rule: Rule) -> None:
        self.post_message(self.Stored(self._store(rule)))

    def on_rule_form_stored(self, message: Stored) -> None:
        """Closes once stored; else says why not and keeps everything."""
        if message.taught.skill is not None:
            self.dismiss(message.taught)
        elif message.taught.stale:
            self._say(f"{message.taught.text} What you wrote stays here; copy what you need before you give it up.")
        else:
            self._say(message.taught.text)

    def _say(self, text: str) -> None:
        self.query_one("#form-problem", Static).update(clean(text))

    def action_cancel(self) -> None:
        """Gives up at once if nothing was changed, else after a question."""
        if not self._changed:
            self.dismiss(None)
        else:
            self.app.push_screen(yes_or_no("Give up what you changed?"), self._given_up)

    def _given_up(self, answer: str | None) -> None:
        if answer == "y":
            self.dismiss(None)


def edit_title(skill: Skill) -> str:
    """The form's title for an edit."""
    return f"Edit {clean(skill.name)}, revision {skill.revision}"
