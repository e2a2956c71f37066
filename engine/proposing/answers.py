"""Reads a model's answer: the module in it, the edits in it, the idea behind it.

Each way in which an answer is of no use has its name (`CallFailure`) and one sentence, which the model is told as well.
"""

from __future__ import annotations

import ast
import re
from collections import Counter

from engine.proposing.edits import EditError, carry_out, has_edits, read_edits
from engine.records import CallFailure

MAX_IDEA = 120
"""The longest idea that is kept, in characters."""

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+-]*)[ \t]*$")
_THOUGHTS = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_OPEN_THOUGHTS = re.compile(r"^\s*<think(?:ing)?>", re.IGNORECASE)
_IDEA = re.compile(r"^[\s*#>_-]*idea[\s*_]*:[\s*_]*(.+?)[\s*_]*$", re.IGNORECASE | re.MULTILINE)


class AnswerError(ValueError):
    """An answer is of no use; the message is one sentence that also tells the model what to do instead."""

    def __init__(self, failure: CallFailure, message: str) -> None:
        super().__init__(message)
        self.failure = failure


def without_thoughts(answer: str) -> str:
    """The answer without what some servers leave of a model's thoughts in it."""
    answer = _THOUGHTS.sub("", answer.replace("\r\n", "\n"))
    return "" if _OPEN_THOUGHTS.match(answer) else answer


def read_module(answer: str, entry: str) -> str:
    """The one module of an answer that defines the entry point.

    Raises:
        AnswerError: there is no code, none that defines `entry`, or more than one.
    """
    answer = without_thoughts(answer)
    blocks = code_blocks(answer)
    if not blocks and _defines(answer, entry) and _parses(answer):
        blocks = [answer.strip("\n") + "\n"]
    if not blocks:
        raise AnswerError(
            CallFailure.NO_CODE,
            "the answer holds no code: put the whole module into one block that opens with ```python",
        )
    modules = list(dict.fromkeys(block for block in blocks if _defines(block, entry)))
    if not modules:
        raise AnswerError(
            CallFailure.NO_ENTRY_POINT, f"no block of code in the answer defines {entry}: give the whole module in one"
        )
    if len(modules) > 1:
        raise AnswerError(
            CallFailure.TWO_CLASSES, f"{len(modules)} blocks of code define {entry}: give one module with one {entry}"
        )
    _refuse_twins(modules[0], entry)
    return modules[0]


def read_change(answer: str, parent: str, entry: str) -> str:
    """The parent's text as an answer changes it, by edits or as a whole.

    Raises:
        AnswerError: there are neither edits nor a module, or they cannot be used.
    """
    answer = without_thoughts(answer)
    if not has_edits(answer):
        changed = read_module(answer, entry)
        if changed.strip() == parent.strip():
            raise AnswerError(CallFailure.NO_CHANGE, "the module is the parent's, unchanged: change something")
        return changed
    try:
        changed = carry_out(parent, read_edits(answer))
    except EditError as error:
        raise AnswerError(error.failure, str(error)) from error
    if not _defines(changed, entry):
        raise AnswerError(CallFailure.NO_ENTRY_POINT, f"after the edits nothing defines {entry}: keep it")
    _refuse_twins(changed, entry)
    return changed


def read_idea(answer: str, source: str, otherwise: str) -> str:
    """The one-line idea that an answer names, else the first line of the module's docstring, else `otherwise`."""
    found = _IDEA.search(without_thoughts(answer))
    idea = found.group(1) if found else ""
    if not idea:
        try:
            idea = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
        except (SyntaxError, ValueError):
            idea = ""
    idea = " ".join((idea or otherwise).split()).rstrip(".")
    return idea if len(idea) <= MAX_IDEA else idea[: MAX_IDEA - 3] + "..."


def read_suggestions(answer: str, most: int = 3) -> list[str]:
    """The improvements that a reviser lists, most important first; without a list, what it says in paragraphs.

    Raises:
        AnswerError: it says nothing.
    """
    items: list[str] = []
    for line in without_thoughts(answer).splitlines():
        start = re.match(r"^\s*(?:\d+[.)]|[-*\u2022])\s+(.*)", line)
        if start and _depth(line) == 0:
            items.append(start.group(1).strip())
        elif items and line.strip():
            items[-1] += "\n" + line.rstrip()
    if not items:
        items = [part.strip() for part in re.split(r"\n\s*\n", without_thoughts(answer)) if part.strip()]
    if not items:
        raise AnswerError(CallFailure.EMPTY, "the answer names no improvement")
    return items[:most]


def _depth(line: str) -> int:
    return (len(line) - len(line.lstrip())) // 2


def code_blocks(answer: str) -> list[str]:
    """The fenced blocks of an answer; one that the answer ends in counts if it is whole Python."""
    blocks: list[str] = []
    fence, body = "", list[str]()
    for line in answer.split("\n"):
        mark = _FENCE.match(line)
        if not fence and mark:
            fence, body = mark.group(1), []
        elif fence and mark and mark.group(1).startswith(fence) and not mark.group(2):
            blocks.append("\n".join(body).strip("\n") + "\n")
            fence = ""
        elif fence:
            body.append(line)
    if fence and _parses("\n".join(body)):
        blocks.append("\n".join(body).strip("\n") + "\n")
    return [block for block in blocks if block.strip()]


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _defines(text: str, entry: str) -> bool:
    return bool(re.search(rf"^(?:class|def)\s+{re.escape(entry)}\b", text, re.MULTILINE))


def _refuse_twins(source: str, entry: str) -> None:
    """Refuses a module in which a class, or the entry point, is defined twice: which one counts would be a guess."""
    try:
        defined = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
        names = [node.name for node in defined if isinstance(node, ast.ClassDef) or node.name == entry]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        names = re.findall(r"^(?:class)\s+(\w+)", source, re.MULTILINE)
    twins = [name for name, count in Counter(names).items() if count > 1]
    if twins:
        raise AnswerError(CallFailure.TWO_CLASSES, f"two classes are named {twins[0]}: give each its own name")
