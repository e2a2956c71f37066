"""The one registry of keys: bindings, the line of keys and the help are all made from it.

Never bound: ctrl+a, ctrl+b (prefixes of screen and tmux), ctrl+s (stops old terminals), ctrl+h (is
Backspace on some) and alt keys (Escape on slow links). Capital letters are bound twice, since
terminals report them as `G` or as `shift+g`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from textual.binding import Binding


class Scope(StrEnum):
    """Where a key works."""

    EVERYWHERE = "everywhere"
    MOVE = "move"
    RUNS = "runs"
    RUN = "run"
    TREE = "tree"
    DIFF = "diff"
    LOG = "log"
    QUEUE = "approvals"
    SKILLS = "skills"


SCOPE_TITLES = {
    Scope.EVERYWHERE: "Everywhere",
    Scope.MOVE: "Moving in a pane",
    Scope.RUNS: "Runs",
    Scope.RUN: "Run",
    Scope.TREE: "Tree",
    Scope.DIFF: "Diff",
    Scope.LOG: "Log",
    Scope.QUEUE: "Approvals",
    Scope.SKILLS: "Skills",
}


@dataclass(frozen=True, slots=True)
class Key:
    """One thing that can be done.

    `keys` are Textual's names; `shown` is what stands in the help; `word` is the line of keys' word
    for it, and `rank` its place there (0: not there, 1: first).
    """

    action: str
    keys: tuple[str, ...]
    shown: str
    word: str
    help: str
    scope: Scope
    rank: int = 0

    @property
    def id(self) -> str:
        """A name by which a key can be changed."""
        return f"{self.scope}.{self.action}"


def _capital(letter: str) -> tuple[str, str]:
    return letter, f"shift+{letter.lower()}"


KEYS: tuple[Key, ...] = (
    Key("show_mode('runs')", ("1",), "1", "runs", "all runs", Scope.EVERYWHERE),
    Key("show_mode('run')", ("2",), "2", "run", "the run that was opened last", Scope.EVERYWHERE),
    Key("show_mode('approvals')", ("3",), "3", "approvals", "proposals that wait for approval", Scope.EVERYWHERE),
    Key("show_mode('skills')", ("4",), "4", "skills", "the rules that proposers follow", Scope.EVERYWHERE),
    Key("help", ("question_mark",), "?", "help", "this page", Scope.EVERYWHERE, 98),
    Key(
        "command_palette",
        ("colon", "shift+semicolon", "ctrl+p"),
        ": ctrl+p",
        "palette",
        "find an action by its name",
        Scope.EVERYWHERE,
    ),
    Key("back", ("q",), "q", "back", "back to the runs; from there, leave", Scope.EVERYWHERE, 97),
    Key("leave", _capital("Q"), "Q", "leave", "leave; searches go on without the screen", Scope.EVERYWHERE),
    Key("cursor_down", ("j", "down"), "j", "down", "one line down", Scope.MOVE),
    Key("cursor_up", ("k", "up"), "k", "up", "one line up", Scope.MOVE),
    Key("half_down", ("ctrl+d", "pagedown"), "ctrl+d", "half down", "half a page down", Scope.MOVE),
    Key("half_up", ("ctrl+u", "pageup"), "ctrl+u", "half up", "half a page up", Scope.MOVE),
    Key("first", ("g", "home"), "g", "first", "to the first line", Scope.MOVE),
    Key("last", (*_capital("G"), "end"), "G", "last", "to the last line", Scope.MOVE),
    Key("open", ("enter", "l", "right"), "Enter", "open", "open the run", Scope.RUNS, 1),
    Key("next_pane", ("tab",), "Tab", "pane", "the next pane", Scope.RUN, 2),
    Key("previous_pane", ("shift+tab",), "shift+Tab", "pane", "the pane before", Scope.RUN),
    Key("zoom", ("z",), "z", "zoom", "this pane alone, and back", Scope.RUN, 15),
    Key("filter", ("slash",), "/", "filter", "show fewer: state:incorrect speedup>1.2 step:local !text", Scope.RUN, 9),
    Key("match(True)", ("n",), "n", "next", "the next candidate that passes the filter", Scope.RUN),
    Key("match(False)", _capital("N"), "N", "previous", "the one before that passes the filter", Scope.RUN),
    Key("clear", ("escape",), "Esc", "clear", "clear the filter, then the marks", Scope.RUN),
    Key("follow", ("f",), "f", "follow", "the cursor goes with the newest candidate, or stays", Scope.RUN, 8),
    Key("best", ("b",), "b", "best", "to the best candidate", Scope.RUN, 7),
    Key("base", ("d",), "d", "diff base", "compare with parent, root or best, or show the source", Scope.RUN, 6),
    Key("approve", ("a",), "a", "approve", "approve the candidate: its code may run", Scope.RUN, 12),
    Key("reject", ("r",), "r", "reject", "reject the candidate, with a reason", Scope.RUN, 13),
    Key("approve_marked", _capital("A"), "A", "approve marked", "approve all marked candidates", Scope.RUN),
    Key("prune", ("x",), "x", "prune", "take a subtree out of the search", Scope.RUN, 4),
    Key("restore", _capital("X"), "X", "restore", "bring a pruned subtree back", Scope.RUN, 14),
    Key("pin", _capital("P"), "P", "pin", "pin the candidate, or unpin it", Scope.RUN, 16),
    Key("hint", ("i",), "i", "hint", "advice for all that grows from the candidate", Scope.RUN, 17),
    Key("hint_run", _capital("I"), "I", "hint", "advice for the whole run", Scope.RUN),
    Key("force", _capital("F"), "F", "force", "force a local or a structural step from the candidate", Scope.RUN, 18),
    Key("retest", _capital("R"), "R", "retest", "judge the candidate again", Scope.RUN, 19),
    Key("pause", ("p",), "p", "pause", "pause or resume; starts an engine where none works", Scope.RUN, 5),
    Key("stop", _capital("S"), "S", "stop", "end the search; what waits is abandoned", Scope.RUN),
    Key("budget", _capital("B"), "B", "budget", "change how many candidates are judged", Scope.RUN),
    Key(
        "edit_own",
        ("e",),
        "e",
        "own kernel",
        "your own kernel, or answer to a prompt, in $EDITOR",
        Scope.RUN,
        10,
    ),
    Key("copy", ("y",), "y", "copy", "copy, then i id, c code, d diff, l log, p prompt", Scope.RUN, 11),
    Key("take_back", ("u",), "u", "take back", "take back the last command that nobody answered yet", Scope.RUN),
    Key("open", ("enter",), "Enter", "diff", "to the diff of the candidate", Scope.TREE, 1),
    Key("fold", ("h", "left"), "h", "fold", "fold, or go to the parent", Scope.TREE, 3),
    Key("unfold", ("l", "right"), "l", "unfold", "unfold, or go to the first child", Scope.TREE, 3),
    Key("mark", ("space",), "Space", "mark", "mark the candidate", Scope.TREE),
    Key("hunk(1)", ("right_square_bracket",), "]", "hunk", "the next change", Scope.DIFF, 3),
    Key("hunk(-1)", ("left_square_bracket",), "[", "hunk", "the change before", Scope.DIFF, 3),
    Key("context(1)", ("right_curly_bracket",), "}", "more", "more lines around changes", Scope.DIFF),
    Key("context(-1)", ("left_curly_bracket",), "{", "less", "fewer lines around changes", Scope.DIFF),
    Key("wrap", ("w",), "w", "wrap", "wrap long lines, or cut them at the edge", Scope.DIFF, 3),
    Key("sideways(8)", ("l", "right"), "l", "right", "look further right", Scope.DIFF),
    Key("sideways(-8)", ("h", "left"), "h", "left", "look further left", Scope.DIFF),
    Key("switch_log", ("l", "h", "right", "left"), "h l", "run or candidate", "log of run or candidate", Scope.LOG, 3),
    Key("approve", ("a",), "a", "approve", "approve: its code may run", Scope.QUEUE, 1),
    Key("reject", ("r",), "r", "reject", "reject, with a reason", Scope.QUEUE, 2),
    Key("mark", ("space",), "Space", "mark", "mark the proposal", Scope.QUEUE, 3),
    Key("approve_marked", _capital("A"), "A", "approve marked", "approve all marked proposals", Scope.QUEUE, 4),
    Key("open", ("enter",), "Enter", "open", "look at it in its run", Scope.QUEUE, 5),
    Key("next_pane", ("tab",), "Tab", "pane", "from the queue to the code and back", Scope.QUEUE, 6),
    Key("base", ("d",), "d", "diff base", "compare with parent or best, or show the source", Scope.QUEUE, 7),
    Key("add", ("n",), "n", "new", "write a new rule", Scope.SKILLS, 1),
    Key("edit", ("e", "enter"), "e", "edit", "edit the rule in a form", Scope.SKILLS, 2),
    Key("edit_text", _capital("E"), "E", "editor", "edit the whole rule in $EDITOR", Scope.SKILLS, 3),
    Key("switch", ("space",), "Space", "on or off", "switch the rule on or off", Scope.SKILLS, 4),
    Key("retire", ("x",), "x", "retire", "retire the rule, with a reason", Scope.SKILLS, 5),
    Key("reinstate", _capital("X"), "X", "take back", "take a retirement back", Scope.SKILLS),
    Key("next_pane", ("tab",), "Tab", "pane", "from the list to the rule and back", Scope.SKILLS, 6),
)


def bindings(*scopes: Scope) -> list[Binding]:
    """Textual's bindings for some scopes."""
    return [
        Binding(
            ",".join(key.keys),
            key.action,
            key.word,
            show=False,
            tooltip=key.help,
            id=key.id,
            priority=key.action == "command_palette",
        )
        for key in KEYS
        if key.scope in scopes
    ]


def key_line(scopes: Iterable[Scope]) -> list[Key]:
    """The keys worth a place in the line of keys, most useful first."""
    wanted = set(scopes)
    return sorted((key for key in KEYS if key.scope in wanted and key.rank), key=lambda key: key.rank)


def help_sections(scopes: Iterable[Scope]) -> list[tuple[str, list[Key]]]:
    """All keys of some scopes, under the names of the scopes."""
    return [(SCOPE_TITLES[scope], [key for key in KEYS if key.scope is scope]) for scope in scopes]
