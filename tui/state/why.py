"""Why a candidate was asked for, in sentences: the terms of the choice, what was shown, and what was asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engine.records import CallState, ModelCall
from tui.state.spending import call_line
from tui.state.words import clean

if TYPE_CHECKING:
    from engine.store.reader import ProposalNote

_SAID = ("selection", "path", "step", "context")


def why_sentences(note: ProposalNote, calls: Sequence[ModelCall]) -> list[str]:
    """Everything that led to a candidate, in the order in which it happened."""
    return [
        *choice_sentences(note.why),
        *_made(note),
        *(sentence for call in calls for sentence in call_sentences(call)),
        *([f"failed: {clean(note.failure)}"] if note.failure else []),
    ]


def choice_sentences(why: Mapping[str, Any]) -> list[str]:
    """The terms of the choice, level by level, the step, and what the proposer was shown."""
    return list(_choice(why))


def _choice(why: Mapping[str, Any]) -> Iterator[str]:
    if why.get("selection") not in (None, "ucb"):
        yield f"the place was chosen by the selection {why['selection']}"
    for level in why.get("path", ()):
        yield _level(level)
    if why.get("step"):
        yield f"step: {clean(str(why['step']))}"
    context = why.get("context")
    if isinstance(context, Mapping):
        numbers = ", ".join(map(str, context.get("numbers", ()))) or "none"
        yield f"candidates shown: {numbers} ({clean(str(context.get('reason', '')))})"
    for name, value in why.items():
        if name not in _SAID:
            yield f"{clean(name.replace('_', ' '))}: {clean(_plain(value))}"


def _level(level: Mapping[str, Any]) -> str:
    arms = list(level["arms"])
    taken = next((arm for arm in arms if arm["arm"] == level["took"]), None)
    place = f"candidate {level['at']}" if level["at"] else "the root"
    rest = [f"{_arm_name(arm)} {_score(arm)}" for arm in arms if arm is not taken]
    if level.get("others"):
        rest.append(f"{level['others']} more with less")
    ahead = f"; ahead of {', '.join(rest)}" if rest else "; there was nothing else"
    won = "" if taken is None else f" with {_terms(taken)}"
    return f"at {place}: {_arm_name({'arm': level['took']})} won{won}{ahead}"


def _arm_name(arm: Mapping[str, Any]) -> str:
    return "growing here" if arm["arm"] is None else f"candidate {arm['arm']}"


def _score(arm: Mapping[str, Any]) -> str:
    return f"{arm.get('score', arm['value'] + arm['bonus']):.3f}"


def _terms(arm: Mapping[str, Any]) -> str:
    owed = ", since it is owed refinements" if arm.get("owed") else ""
    return f"{_score(arm)} (value {arm['value']:.3f}, exploration {arm['bonus']:.3f}{owed})"


def _plain(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value)) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items()) or "none"
    return str(value)


def _made(note: ProposalNote) -> Iterator[str]:
    if note.recipe is not None:
        settings = ", ".join(f"{name} {_plain(value)}" for name, value in note.recipe.get("parameters", {}).items())
        structure = note.recipe.get("structure", "a recipe")
        yield clean(f"made by the {note.proposer} as {structure}" + (f" with {settings}" if settings else ""))


def call_sentences(call: ModelCall) -> list[str]:
    """What was asked of a model, which rules that held, what it had no room for, and how it failed."""
    said = [f"asked: {call_line(call)}"]
    if call.skills:
        rules = ", ".join(
            f"{clean(name)} (revision {revision})" if revision else clean(name) for name, revision in call.skills
        )
        said.append(f"rules in the prompt: {rules}")
    if call.dropped:
        said.append(f"left out of the prompt to fit: {', '.join(call.dropped)}")
    if call.state is CallState.INTERRUPTED:
        said.append(f"interrupted: {clean(call.detail)}")
    elif call.failure is not None:
        said.append(f"{call.failure.replace('_', ' ')}: {clean(call.detail)}")
    return said
