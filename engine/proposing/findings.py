"""What a run has found so far, as a prompt for one of its steps is told it."""

from __future__ import annotations

from pathlib import Path

from engine.proposing.briefing import Briefing, Shown, Subject, local_briefing, structural_briefing
from engine.proposing.describe import tried_words
from engine.proposing.proposer import ProposalRequest
from engine.store.reader import Reader
from skills.records import Skill, SkillStatus
from skills.rule_files import read_rules


def usable_skills(reader: Reader, choice: str) -> list[Skill]:
    """The rules that prompts may show, as the setting `skills` says: `active`, `none`, or those of a file or folder.

    Raises:
        SkillError: the file holds no rules.
    """
    if choice == "none":
        return []
    if choice == "active":
        return reader.skills().find(status=SkillStatus.ACTIVE, enabled=True)
    return [
        Skill(
            id=0, revision=0, status=SkillStatus.ACTIVE, enabled=True, author=choice, reason="", changed_at=0.0,
            **rule.changes(),
        )
        for rule in read_rules(Path(choice))
    ]  # fmt: skip


class Findings:
    """The candidates, hints and rules of one run.

    Args:
        reader: the database.
        run: the run's number.
        subject: what its prompts are about.

    Raises:
        SkillError: the rules that the settings name cannot be read.
    """

    def __init__(self, reader: Reader, run: int, subject: Subject) -> None:
        self.reader = reader
        self.run = run
        own = subject.settings.skills not in ("active", "none")
        self._own_skills = usable_skills(reader, subject.settings.skills) if own else None
        self.subject = subject

    def shown(self, number: int) -> Shown:
        """A candidate with its text and what the judge said of it."""
        (candidate,) = self.reader.candidates(self.run, [number])
        source = self.reader.source(self.run, number) or ""
        return Shown(candidate, source, self.reader.evaluation(self.run, number))

    def structural(self, request: ProposalRequest) -> Briefing:
        """What is told for a new kernel."""
        return structural_briefing(
            self.subject,
            self._skills(),
            [self.shown(number) for number in request.context],
            tried_words(self.reader.structures(self.run)),
            self.reader.hints(self.run, request.parent),
            self.reader.latest_failures(self.run),
        )

    def local(self, request: ProposalRequest) -> tuple[Briefing, list[Shown]]:
        """What is told for a change of the parent, and the chain that led to it, which ends with the parent."""
        assert request.parent is not None
        parent = self.shown(request.parent)
        history = [self.shown(number) for number in request.context if number != request.parent]
        hints = self.reader.hints(self.run, request.parent)
        tried = tried_words(self.reader.changes(self.run, request.parent))
        return local_briefing(self.subject, self._skills(), parent, history, tried, hints), [*history, parent]

    def _skills(self) -> list[Skill]:
        if self._own_skills is not None:
            return self._own_skills
        return usable_skills(self.reader, self.subject.settings.skills)
