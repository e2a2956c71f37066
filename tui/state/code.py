"""Colours of Python source as spans per line, from pygments; knows no styles, only what a token is."""

from __future__ import annotations

from functools import lru_cache

from pygments.lexers.python import PythonLexer
from pygments.token import (
    Comment,
    Keyword,
    Name,
    Number,
    Operator,
    String,
    _TokenType,
)

from tui.state.words import Piece, Tone, clean

_KINDS: tuple[tuple[_TokenType, str], ...] = (
    (Comment, "comment"),
    (String, "string"),
    (Number, "number"),
    (Keyword, "keyword"),
    (Operator.Word, "keyword"),
    (Name.Decorator, "decorator"),
    (Name.Function, "name"),
    (Name.Class, "name"),
    (Name.Builtin, "builtin"),
)
CODE_TONES = ("comment", "string", "number", "keyword", "decorator", "name", "builtin")

CodeLine = tuple[Piece, ...]


@lru_cache(maxsize=64)
def colour(source: str) -> tuple[CodeLine, ...]:
    """The lines of a Python module as pieces; control characters are made visible.

    Cached, since the same parents are shown again and again.
    """
    lines: list[CodeLine] = []
    current: list[Piece] = []
    lexer = PythonLexer(stripnl=False, ensurenl=False)
    for token, text in lexer.get_tokens(normal_lines(source)):
        tone = _tone(token)
        for index, part in enumerate(text.split("\n")):
            if index:
                lines.append(tuple(current))
                current = []
            if part:
                current.append((part, tone))
    if current:
        lines.append(tuple(current))
    return tuple(lines)


def normal_lines(source: str) -> str:
    """Source with plain line ends and nothing that a terminal would obey."""
    return clean("\n".join(source.splitlines()))


@lru_cache(maxsize=256)
def _tone(token: _TokenType) -> str:
    for kind, tone in _KINDS:
        if token in kind:
            return tone
    return Tone.PLAIN
