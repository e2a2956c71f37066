"""Finds breaches of rules in a source text by their ast-grep patterns, without running anything.

A pattern is one of:

* a plain ast-grep pattern for Python, such as `tl.load($P, other=$V)`, looked for in the bodies of
  functions decorated with `triton.jit` or `jit` and nowhere else;
* a JSON object in ast-grep's rule language with `rule` and optionally `constraints` and `utils`,
  looked for in the whole text; `{"matches": "in-kernel"}` limits a part of it to kernels' bodies.

The rule language is described at https://ast-grep.github.io/reference/rule.html.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ast_grep_py import SgRoot

from skills.errors import SkillError
from skills.records import Skill

IN_KERNEL: dict[str, Any] = {
    "inside": {
        "kind": "block",
        "stopBy": "end",
        "inside": {
            "kind": "function_definition",
            "inside": {
                "kind": "decorated_definition",
                "has": {"kind": "decorator", "regex": r"^@\s*(triton\s*\.\s*)?jit\s*($|[(#])"},
            },
        },
    }
}

MAX_TEXT = 200
"""The longest quotation of a breach, in characters."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One place that breaks a rule: `line` counts from 1, `text` is the first line of what matched."""

    skill: Skill
    line: int
    text: str


def violations(source: str, skills: Iterable[Skill]) -> list[Violation]:
    """Every place of the source that one of the skills' patterns finds, in the order of lines.

    A source that is not valid Python is searched as far as it can be read. Which skills count (active,
    switched on) is the caller's choice; skills without a pattern find nothing.

    Raises:
        SkillError: if a pattern is malformed; the memory stores none that is.
    """
    root = SgRoot(source.encode("utf-8", "replace").decode(), "python").root()
    found: dict[tuple[int, int], Violation] = {}
    for skill in skills:
        if not skill.pattern:
            continue
        for line, text in _places(root, skill.pattern):
            found.setdefault((line, skill.id), Violation(skill, line, text))
    return [found[place] for place in sorted(found)]


def matches(source: str, pattern: str) -> bool:
    """Whether the pattern finds anything in the source.

    Raises:
        SkillError: if the pattern is malformed.
    """
    root = SgRoot(source.encode("utf-8", "replace").decode(), "python").root()
    return bool(pattern) and bool(_places(root, pattern))


def check_pattern(pattern: str) -> None:
    """Accept a pattern that ast-grep can use, and the empty one.

    Raises:
        SkillError: with ast-grep's reason.
    """
    if pattern:
        _places(SgRoot("", "python").root(), pattern)


def _places(root: Any, pattern: str) -> list[tuple[int, str]]:
    config = _config(pattern)
    try:
        nodes = root.find_all(config)
    except Exception as error:  # ast-grep raises bare Exception for unknown fields, RuntimeError for the rest
        raise SkillError(f"The pattern cannot be used: {_reason(error)}.") from error
    return [(node.range().start.line + 1, _first_line(node.text())) for node in nodes]


def _config(pattern: str) -> dict[str, Any]:
    if not pattern.startswith("{"):
        return {"rule": {"all": [{"pattern": pattern}, {"matches": "in-kernel"}]}, "utils": {"in-kernel": IN_KERNEL}}
    try:
        config = json.loads(pattern)
    except json.JSONDecodeError as error:
        raise SkillError(f"The pattern starts like a JSON object but is none: {error}.") from error
    if unknown := set(config) - {"rule", "constraints", "utils"}:
        raise SkillError(f"The pattern has the unknown part {min(unknown)!r}: use rule, constraints and utils.")
    if not isinstance(config.get("rule"), dict) or not isinstance(config.get("utils", {}), dict):
        raise SkillError("The pattern lacks a rule: write an object with rule and optionally constraints and utils.")
    return {**config, "utils": {"in-kernel": IN_KERNEL, **config.get("utils", {})}}


def _reason(error: Exception) -> str:
    """The innermost of ast-grep's numbered causes on one line, without its native stack."""
    text = str(error).split("Stack backtrace:")[0]
    innermost = re.split(r"^\s*\d+: ", text, flags=re.MULTILINE)[-1]
    return " ".join(innermost.split()).rstrip(".") or type(error).__name__


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0].strip()[:MAX_TEXT]
