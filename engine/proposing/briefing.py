"""What goes into each prompt of a run: pure functions of the task, the settings and what has been found so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.proposing.describe import device_words, kernel_item, task_words
from engine.proposing.prompt import Item, Prompt, compose, template
from engine.proposing.tokens import estimate_tokens
from engine.records import Candidate, Evaluation, Task
from engine.settings import RunSettings
from skills.records import Skill
from skills.retrieval import Situation, relevant

_SKILL_SHARE = 8
"""Rules may take this part of a prompt's tokens: one in so many."""

Values = Mapping[str, Item | Sequence[Item]]


@dataclass(frozen=True, slots=True)
class Shown:
    """A candidate as a prompt shows it."""

    candidate: Candidate
    source: str
    evaluation: Evaluation | None

    @property
    def correct(self) -> bool:
        """Whether it gave right answers."""
        return self.evaluation is not None and self.evaluation.correct

    @property
    def error(self) -> str:
        """What went wrong with it, "" if nothing did."""
        if self.evaluation is None or self.evaluation.correct:
            return ""
        return f"{self.evaluation.reason}\n{self.evaluation.log}"


@dataclass(frozen=True, slots=True)
class Subject:
    """What all prompts of a run are about. `entry` is the name that a candidate must define."""

    task: Task
    entry: str
    device: str
    facts: Mapping[str, Any]
    settings: RunSettings


@dataclass(frozen=True, slots=True)
class Briefing:
    """The values for a template, and the rules among them."""

    values: Values
    skills: Sequence[Skill]

    def prompt(self, name: str, budget: int, **more: Item | Sequence[Item]) -> tuple[Prompt, list[Skill]]:
        """Fills a template in, with more values; returns the rules that are in the result as well."""
        made = compose(template(name), {**self.values, **more}, budget)
        return made, [self.skills[index] for index in made.kept.get("skills", ())]


def structural_briefing(
    subject: Subject,
    skills: Sequence[Skill],
    kernels: Sequence[Shown] = (),
    tried: Sequence[str] = (),
    hints: Sequence[str] = (),
    errors: Sequence[str] = (),
) -> Briefing:
    """What a structural step is told: kernels to learn from, structures tried, and what failed lately."""
    texts = [subject.task.source, *(shown.source for shown in kernels)]
    chosen = _rules(subject, skills, texts, [*errors, *(shown.error for shown in kernels if shown.error)])
    values = {
        **_common(subject, chosen, hints),
        "tried": "\n".join(tried),
        "context": [kernel_item(shown.candidate, shown.source, shown.evaluation) for shown in kernels],
    }
    return Briefing(values, chosen)


def local_briefing(
    subject: Subject,
    skills: Sequence[Skill],
    parent: Shown,
    history: Sequence[Shown] = (),
    tried: Sequence[str] = (),
    hints: Sequence[str] = (),
) -> Briefing:
    """What a local step is told: the parent, the chain that led to it, oldest first, and what was tried on it."""
    chain = [*history, parent]
    texts = [subject.task.source, parent.source]
    faulty = "" if parent.correct else parent.source
    chosen = _rules(subject, skills, texts, [shown.error for shown in chain if shown.error], faulty)
    values = {
        **_common(subject, chosen, hints),
        "history": [kernel_item(shown.candidate, shown.source, shown.evaluation) for shown in history],
        "tried": "\n".join(tried),
        "parent": [kernel_item(parent.candidate, parent.source, parent.evaluation)],
    }
    return Briefing(values, chosen)


def _common(subject: Subject, skills: Sequence[Skill], hints: Sequence[str]) -> dict[str, Item | Sequence[Item]]:
    settings = subject.settings
    return {
        "task": [task_words(subject.task, subject.entry, subject.facts, settings.numerics)],
        "device": device_words(subject.facts, subject.device),
        "skills": [f"- {skill.statement}" for skill in skills],
        "hints": "\n".join(f"- {hint}" for hint in hints),
        "notes": settings.llm.notes,
    }


def _rules(
    subject: Subject, skills: Sequence[Skill], texts: Sequence[str], errors: Sequence[str], faulty: str = ""
) -> list[Skill]:
    budget = subject.settings.llm.prompt_tokens // _SKILL_SHARE
    return relevant(skills, Situation(texts, errors, faulty), budget, estimate_tokens)
