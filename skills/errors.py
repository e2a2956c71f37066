"""What can go wrong with rules; the text of each error is one plain sentence for a person."""

from __future__ import annotations


class SkillError(ValueError):
    """A rule, or a request about one, is not acceptable."""


class UnknownSkill(SkillError):
    """No rule has this id or name."""


class StaleRevision(SkillError):
    """The rule was changed by someone else after the revision that an edit started from."""

    def __init__(self, name: str, expected: int, current: int, author: str) -> None:
        super().__init__(
            f"The rule {name} is at revision {current} (changed by {author}), not {expected} any more: "
            "load it again and repeat the change."
        )
        self.name = name
        self.expected = expected
        self.current = current
        self.author = author


class ProbeUnavailable(RuntimeError):
    """Probes cannot run on this machine at all, which says nothing about any rule."""
