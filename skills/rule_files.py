"""Rules as readable TOML files: what ships, what is exported, and what a person sees in an editor."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from skills.checks import check_rule
from skills.errors import SkillError
from skills.records import Rule, Skill, SkillKind

_TEXT_FIELDS = ("name", "kind", "statement", "scope", "stage", "expect", "pattern", "probe", "counter_probe")
_MULTI_LINE = ("pattern", "probe", "counter_probe")

GUIDE = """\
# One rule. Save and close to keep it; close without saving to leave everything as it was.
# statement: one sentence: what fails, where, and what to write instead.
# stage: where breaking it shows: compile, run or numerics.
# pattern: finds breaches in kernels: an ast-grep pattern like tl.load($P, other=$V), or a JSON object
#   in ast-grep's rule language. May be empty.
# probe: a complete Python module with one Triton kernel that must fail with a message containing expect;
#   counter_probe: the repaired module, which must compile. Both name the kernel's parameters:
#   SIGNATURE = {"x": "*fp32", "n": "i32", "BLOCK": "constexpr"}
#   CONSTEXPRS = {"BLOCK": 128}
#   and optionally OPTIONS = {"num_warps": 4} and, where there are several jit functions, KERNEL = "name".
"""

BLANK = Rule(
    name="name-of-the-rule",
    statement="",
    scope="triton>=3.6, NVIDIA",
    probe="""\
import triton
import triton.language as tl


@triton.jit
def kernel(x, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x + offsets, 0.0)


SIGNATURE = {"x": "*fp32", "BLOCK": "constexpr"}
CONSTEXPRS = {"BLOCK": 128}
""",
)
"""What an editor shows for a new rule."""


def shipped_rules() -> list[Rule]:
    """The rules that come with the program, by name.

    Raises:
        SkillError: if a shipped file is damaged.
    """
    folder = resources.files("skills").joinpath("rules")
    texts = {entry.name: entry.read_text("utf-8") for entry in folder.iterdir() if entry.name.endswith(".toml")}
    return sorted((from_text(text, name) for name, text in texts.items()), key=lambda rule: rule.name)


def read_rules(path: Path) -> list[Rule]:
    """The rule in a file, or those in a folder's `*.toml` files.

    Raises:
        SkillError: if there is nothing to read, or a file is not a rule; with its name.
    """
    if not path.is_dir():
        return [read_rule(path)]
    files = sorted(path.glob("*.toml"))
    if not files:
        raise SkillError(f"{path} holds no *.toml file: name a rule file or a folder of them.")
    return [read_rule(file) for file in files]


def read_rule(path: Path) -> Rule:
    """The rule in one file.

    Raises:
        SkillError: if the file cannot be read or is not a rule; with its name and the field.
    """
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise SkillError(f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8.") from error
    except OSError as error:
        raise SkillError(f"{path} cannot be read: {error.strerror}.") from error
    return from_text(text, str(path))


def write_rule(folder: Path, rule: Rule | Skill) -> Path:
    """Write the rule as NAME.toml into a folder, replacing what is there, and return the path."""
    path = folder / f"{rule.name}.toml"
    path.write_text(to_text(rule), "utf-8", newline="\n")
    return path


def from_text(text: str, source: str = "The text") -> Rule:
    """Read a rule.

    Args:
        text: in TOML.
        source: what to call it in errors: a file's name.

    Raises:
        SkillError: if it is not TOML, a field is missing, unknown or not acceptable.
    """
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SkillError(f"{source} is not TOML: {error}.") from error
    return _checked(found, source)


def to_text(rule: Rule | Skill, *, guide: bool = False) -> str:
    """Write a rule so that `from_text` gives it back exactly.

    Args:
        rule: a skill's text names its revision, so that an edit of it can be refused once it is stale.
        guide: start with comments that explain the fields, for a person in an editor.
    """
    if isinstance(rule, Skill):
        rule = rule.rule()
    lines = [GUIDE] if guide else []
    if rule.revision is not None:
        lines.append(f"revision = {rule.revision}")
    for name in _TEXT_FIELDS:
        value = str(getattr(rule, name))
        lines.append(f"{name} = {_multi_line(value) if name in _MULTI_LINE and value else _one_line(value)}")
    return "\n".join(lines) + "\n"


def _checked(found: dict[str, Any], source: str) -> Rule:
    if unknown := sorted(set(found) - {*_TEXT_FIELDS, "revision"}):
        raise SkillError(f"{source}: the field {unknown[0]} is unknown; a rule has {', '.join(_TEXT_FIELDS)}.")
    for name in ("name", "statement"):
        if name not in found:
            raise SkillError(f"{source}: the field {name} is missing.")
    for name in _TEXT_FIELDS:
        if not isinstance(found.get(name, ""), str):
            raise SkillError(f"{source}: the field {name} is not a text: put it in quotes.")
    revision = found.pop("revision", None)
    if revision is not None and (type(revision) is not int or revision < 1):
        raise SkillError(f"{source}: the field revision is not a number from 1: leave it as it was.")
    kind = found.pop("kind", SkillKind.VALIDITY)
    if kind not in tuple(SkillKind):
        raise SkillError(f"{source}: the field kind is {kind!r}: write {' or '.join(SkillKind)}.")
    try:
        return check_rule(replace(Rule(**found), kind=SkillKind(kind), revision=revision))
    except SkillError as error:
        raise SkillError(f"{source}: {error}") from error


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f"}


def _one_line(text: str) -> str:
    return f'"{_escape(text, keep="")}"'


def _multi_line(text: str) -> str:
    """A literal string where TOML's rules allow it, because probes are read and edited by people."""
    literal = "'''" not in text and not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text)
    if literal:
        return f"'''\n{text}'''"
    return f'"""\n{_escape(text, keep=chr(10) + chr(9))}"""'


def _escape(text: str, keep: str) -> str:
    def escaped(found: re.Match[str]) -> str:
        character = found.group()
        return character if character in keep else _ESCAPES.get(character, f"\\u{ord(character):04x}")

    return re.sub(r'[\\"\x00-\x1f\x7f]', escaped, text)
