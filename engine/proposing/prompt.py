"""Prompts: templates from their own files, filled in, and cut to a budget of tokens in a fixed order.

A template's file starts with its version, which rises with every change of its text. Then come sections:

    [[user history drop=1 first]]
    # How this kernel came about

    $value

`user` or `system` is the message it belongs to, `history` the value it shows; without that value the section is left
out. Where the prompt is too long, the section with the lowest number at `drop` gives way first, one item of its value
at a time: the last one, or with `first` the first one. Sections without a number are always sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from engine.proposing.tokens import estimate_tokens

Item = str | tuple[str, ...]
"""One item of a value: a text, or pieces of one that are stored apart because other prompts have them too."""

TEMPLATES = ("structural", "reviser", "tuner", "task_synthesis", "rule_statement")

_HEADER = re.compile(r"^\[\[(system|user)(?: (\w+))?(?: drop=(\d+))?( first)?\]\]$")
_VALUE = "$value"
_BETWEEN = "\n\n"


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a template: the text before and after its value."""

    role: str
    name: str
    before: str
    after: str
    drop: int | None = None
    drop_first: bool = False


@dataclass(frozen=True, slots=True)
class Template:
    """A prompt to be filled in."""

    name: str
    version: int
    sections: tuple[Section, ...]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as it is sent.

    Attributes:
        template: the name and version of what it was made from.
        messages: each message's role and the parts whose concatenation is its text.
        kept: for each value shown, the indices of the items that are in it.
        dropped: in words, what was left out to fit.
        tokens: its length, estimated.
    """

    template: str
    version: int
    messages: tuple[tuple[str, tuple[str, ...]], ...]
    kept: Mapping[str, tuple[int, ...]]
    dropped: tuple[str, ...]
    tokens: int

    @property
    def texts(self) -> list[tuple[str, str]]:
        """Role and whole text of each message."""
        return [(role, "".join(parts)) for role, parts in self.messages]


@cache
def template(name: str) -> Template:
    """A shipped template.

    Raises:
        ValueError: its file is not well formed.
    """
    text = (files("engine.proposing") / "prompts" / f"{name}.md").read_text(encoding="utf-8")
    return read_template(name, text)


def read_template(name: str, text: str) -> Template:
    """A template from its text.

    Raises:
        ValueError: a version or a section is missing, or a section has no role or more than one value.
    """
    first, _, rest = text.partition("\n")
    version = re.fullmatch(r"version: (\d+)", first.strip())
    if version is None:
        raise ValueError(f"the template {name} does not start with a line such as version: 1")
    sections = []
    for block in re.split(r"^(?=\[\[)", rest, flags=re.MULTILINE):
        if not block.strip():
            continue
        header, _, body = block.partition("\n")
        found = _HEADER.match(header.strip())
        if found is None or body.count(_VALUE) != (1 if found.group(2) else 0):
            raise ValueError(f"the template {name} has a section that cannot be read: {header}")
        before, _, after = body.strip("\n").partition(_VALUE)
        role, value, drop, first_goes = found.groups()
        sections.append(Section(role, value or "", before, after, int(drop) if drop else None, bool(first_goes)))
    if not sections:
        raise ValueError(f"the template {name} has no section")
    return Template(name, int(version.group(1)), tuple(sections))


def compose(made_from: Template, values: Mapping[str, Item | Sequence[Item]], budget: int) -> Prompt:
    """Fills a template in and drops what may be dropped, in its order, until it fits into `budget` tokens.

    What may not be dropped is sent even if it does not fit: the server has the last word on that.
    """
    shown = {name: _items(value) for name, value in values.items()}
    kept = {name: tuple(range(len(items))) for name, items in shown.items() if items}
    prompt = _fill(made_from, shown, kept)
    while prompt.tokens > budget:
        section = min(
            (section for section in made_from.sections if section.drop is not None and kept.get(section.name)),
            key=lambda section: section.drop or 0,
            default=None,
        )
        if section is None:
            break
        left = kept[section.name][1:] if section.drop_first else kept[section.name][:-1]
        kept = {**kept, section.name: left}
        prompt = _fill(made_from, shown, kept)
    dropped = tuple(
        f"{len(items) - len(kept[name])} of {len(items)} of {name}" if len(items) > 1 else name
        for name, items in shown.items()
        if items and len(kept[name]) < len(items)
    )
    return replace(prompt, dropped=dropped)


def _items(value: Item | Sequence[Item]) -> list[tuple[str, ...]]:
    """A value as its items, each in pieces; empty ones are left out."""
    if isinstance(value, str):
        return [(value,)] if value.strip() else []
    return [(item,) if isinstance(item, str) else tuple(item) for item in value if "".join(item).strip()]


def _fill(
    made_from: Template, shown: Mapping[str, list[tuple[str, ...]]], kept: Mapping[str, tuple[int, ...]]
) -> Prompt:
    messages: dict[str, list[str]] = {}
    for section in made_from.sections:
        if section.name and not kept.get(section.name):
            continue
        parts = messages.setdefault(section.role, [])
        parts.append((_BETWEEN if parts else "") + section.before)
        for position, index in enumerate(kept.get(section.name, ())):
            parts.extend([_BETWEEN] if position else [])
            parts.extend(shown[section.name][index])
        if section.after:
            parts.append(section.after)
    tokens = sum(estimate_tokens("".join(parts)) for parts in messages.values())
    return Prompt(
        made_from.name,
        made_from.version,
        tuple((role, tuple(parts)) for role, parts in messages.items()),
        {name: indices for name, indices in kept.items() if indices},
        (),
        tokens,
    )
