"""The rules that proposers follow: the list, one rule in full, and what a person can change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.message import Message

from skills.errors import SkillError
from skills.records import Rule, Skill, SkillStatus
from skills.rule_files import BLANK, from_text, to_text
from tui.context import Context
from tui.editor import edit_text
from tui.keys import Scope, bindings
from tui.poller import Follower
from tui.screens.base import CockpitScreen
from tui.screens.prompts import TextPrompt
from tui.screens.rule_form import RuleForm, edit_title
from tui.state.rules import RuleDetail, in_use, list_row, rule_rows
from tui.state.run_view import Segment
from tui.state.words import Tone, plural
from tui.teaching import (
    Shelf,
    Taught,
    add_rule,
    edit_rule,
    read_rule_detail,
    read_shelf,
    reinstate_rule,
    retire_rule,
    switch_rule,
)
from tui.widgets.lines import LineView
from tui.widgets.pane import Pane
from tui.widgets.passage import Passage
from tui.widgets.row_list import RowList

TWO_PANES_FROM = 100


class SkillsScreen(CockpitScreen):
    """A list on the left, the rule under the cursor on the right."""

    SCOPE = Scope.SKILLS
    BINDINGS: ClassVar[list[BindingType]] = list(bindings(Scope.SKILLS))

    class Changed(Message):
        """Some rule changed."""

        def __init__(self, event: int) -> None:
            super().__init__()
            self.event = event

    class ShelfRead(Message):
        """The list was read."""

        def __init__(self, shelf: Shelf) -> None:
            super().__init__()
            self.shelf = shelf

    class RuleRead(Message):
        """A rule was read."""

        def __init__(self, detail: RuleDetail | None) -> None:
            super().__init__()
            self.detail = detail

    class Done(Message):
        """A change was made, or refused."""

        def __init__(self, taught: Taught) -> None:
            super().__init__()
            self.taught = taught

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.shelf = Shelf()
        self.detail: RuleDetail | None = None
        self._goto: int | None = None

    def compose_body(self) -> ComposeResult:
        """List and rule."""
        more = self.context.glyphs.more
        with Horizontal(id="skills"):
            yield Pane("Rules", RowList[int]("no rule yet; n writes one", more, id="rules"), more, id="rules-pane")
            yield Pane("Rule", Passage("no rule is chosen", id="rule"), more, id="rule-pane")

    @property
    def list(self) -> RowList[int]:
        """The list."""
        return cast("RowList[int]", self.query_one("#rules", RowList))

    @property
    def passage(self) -> Passage:
        """The rule."""
        return self.query_one("#rule", Passage)

    def on_mount(self) -> None:
        """Follows the changes to rules."""
        self.list.focus()
        source = self.context.sources.skills(self.context.db)
        self.follow(cast("Follower[object]", Follower(self, source, self.Changed, self.context.poll_seconds)))

    # Reading

    def on_skills_screen_changed(self) -> None:
        """Reads the list anew."""
        self.run_worker(self._read_shelf, thread=True, exclusive=True, exit_on_error=False, group="shelf")

    def _read_shelf(self) -> None:
        self.post_message(self.ShelfRead(read_shelf(self.context.db)))

    def on_skills_screen_shelf_read(self, message: ShelfRead) -> None:
        """Shows the list."""
        self.shelf = message.shelf
        if self.shelf.problem:
            self.say(self.shelf.problem, Tone.BAD)
        glyphs = self.context.glyphs
        rows = [list_row(skill, self.shelf.counts.get(skill.id, {}), glyphs) for skill in self.shelf.skills]
        self.list.show([skill.id for skill in self.shelf.skills], rows)
        if self._goto is not None and self.list.go_to(self._goto):
            self._goto = None
        used = sum(in_use(skill) for skill in self.shelf.skills)
        self.query_one("#rules-pane", Pane).about([(f"{used} of {len(self.shelf.skills)} in use", Tone.MUTED)])
        self.refresh_status()
        self._read_rule()

    def on_line_view_cursor_moved(self, message: LineView.CursorMoved) -> None:
        """Reads the rule under the cursor."""
        if message.view is self.list:
            self._read_rule()

    def _read_rule(self) -> None:
        skill = self.list.current
        if skill is None:
            self.on_skills_screen_rule_read(self.RuleRead(None))
            return
        reading = partial(self._read_rule_in_thread, skill)
        self.run_worker(reading, thread=True, exclusive=True, exit_on_error=False, group="rule")

    def _read_rule_in_thread(self, skill: int) -> None:
        self.post_message(self.RuleRead(read_rule_detail(self.context.db, skill)))

    def on_skills_screen_rule_read(self, message: RuleRead) -> None:
        """Shows the rule, if the cursor is still there."""
        detail = message.detail
        if detail is not None and detail.skill.id != self.list.current:
            return
        same = detail is not None and self.detail is not None and detail.skill.id == self.detail.skill.id
        self.detail = detail
        layout = partial(rule_rows, detail, self.context.glyphs) if detail is not None else None
        self.passage.show(layout, keep_place=same)
        about = f"revision {detail.skill.revision} by {detail.skill.author}" if detail else ""
        self.query_one("#rule-pane", Pane).about([(about, Tone.MUTED)])

    def segments(self) -> Sequence[Segment]:
        """How many rules there are."""
        retired = sum(skill.status is SkillStatus.RETIRED for skill in self.shelf.skills)
        parts = [Segment("Skills", Tone.STRONG), Segment(plural(len(self.shelf.skills) - retired, "rule"))]
        if retired:
            parts.append(Segment(f"{retired} retired", Tone.MUTED))
        return parts

    # Panes

    def on_resize(self, event: events.Resize) -> None:
        """One pane where there is little room."""
        self._arrange(event.size.width)

    def on_descendant_focus(self) -> None:
        """Shows the pane that has the focus."""
        self._arrange(self.size.width)

    def _arrange(self, width: int) -> None:
        narrow = width < TWO_PANES_FROM
        self.query_one("#rules-pane").display = not narrow or self.focused is not self.passage
        self.query_one("#rule-pane").display = not narrow or self.focused is self.passage

    def action_next_pane(self) -> None:
        """From the list to the rule and back."""
        for pane in self.query(Pane):
            pane.display = True
        self.cycle([self.list, self.passage])

    # Changing

    def _skill(self) -> Skill | None:
        if self.detail is None:
            self.say("no rule is chosen", Tone.WARN)
            return None
        return self.detail.skill

    def _teach(self, action: Callable[[], Taught]) -> None:
        self.run_worker(partial(self._teach_in_thread, action), thread=True, exit_on_error=False, group="teaching")

    def _teach_in_thread(self, action: Callable[[], Taught]) -> None:
        self.post_message(self.Done(action()))

    def on_skills_screen_done(self, message: Done) -> None:
        """Says what came of a change."""
        self._taught(message.taught)

    def _taught(self, taught: Taught | None) -> None:
        if taught is None:
            self.say("nothing was changed")
            return
        self.say(taught.text, Tone.GOOD if taught.skill is not None else Tone.BAD)
        if taught.skill is not None:
            self._goto = taught.skill.id
        self.on_skills_screen_changed()

    def action_add(self) -> None:
        """A form for a new rule."""
        # A rule may go without a probe; the example in the editor's text would demand the rest of one.
        form = RuleForm("New rule", replace(BLANK, probe=""), partial(add_rule, self.context.db))
        self.app.push_screen(form, self._taught)

    def action_edit(self) -> None:
        """A form with the rule."""
        if (skill := self._skill()) is not None:
            form = RuleForm(edit_title(skill), skill.rule(), partial(edit_rule, self.context.db, skill))
            self.app.push_screen(form, self._taught)

    def action_edit_text(self) -> None:
        """The rule's text in the person's editor; a text that is refused stays in its file."""
        skill = self._skill()
        if skill is None:
            return
        edited = edit_text(self.app, to_text(skill, guide=True), f"{skill.name}.toml")
        if edited.problem or edited.text is None:
            self.say(edited.problem or "nothing was changed", Tone.BAD if edited.problem else Tone.ACCENT)
            if not edited.problem:
                edited.forget()
            return
        try:
            rule: Rule = from_text(edited.text, "the edited text")
        except SkillError as error:
            self.say(f"{error} Your text is in {edited.file}", Tone.BAD)
            return

        def change() -> Taught:
            taught = edit_rule(self.context.db, skill, rule)
            if taught.skill is None:
                return Taught(None, f"{taught.text} Your text is in {edited.file}", taught.stale)
            edited.forget()
            return taught

        self._teach(change)

    def action_switch(self) -> None:
        """Switches the rule on or off."""
        if (skill := self._skill()) is not None:
            self._teach(partial(switch_rule, self.context.db, skill))

    def action_retire(self) -> None:
        """Retires the rule, with a reason."""
        skill = self._skill()
        if skill is None:
            return
        if skill.status is SkillStatus.RETIRED:
            self.say(f"{skill.name} is retired already; X takes that back", Tone.WARN)
            return
        prompt = TextPrompt(f"Why is {skill.name} retired? ", hint="Enter retires it, Escape does not")
        self.app.push_screen(prompt, partial(self._retire, skill))

    def _retire(self, skill: Skill, reason: str | None) -> None:
        if reason is None:
            self.say("nothing was changed")
        else:
            self._teach(partial(retire_rule, self.context.db, skill, reason))

    def action_reinstate(self) -> None:
        """Takes a retirement back."""
        skill = self._skill()
        if skill is None:
            return
        if skill.status is not SkillStatus.RETIRED:
            self.say(f"{skill.name} is not retired", Tone.WARN)
            return
        self._teach(partial(reinstate_rule, self.context.db, skill))
