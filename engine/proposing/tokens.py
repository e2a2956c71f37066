"""How long a text is for a model, estimated without its tokenizer."""

from __future__ import annotations

BYTES_PER_TOKEN = 3
"""Code and English have 3.3 to 4.5 bytes a token in tokenizers of today; fewer is the safe side for a limit."""


def estimate_tokens(text: str) -> int:
    """Tokens of a text, rather more than a tokenizer would count."""
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)
