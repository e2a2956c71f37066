"""The tree as a flat list of visible rows, folded from candidates as they arrive.

Adding one candidate to ten thousand moves one slice of a list; nothing recurses, so a chain of any
depth is fine. The cursor is a candidate, not a row: what arrives never moves it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from engine.records import Candidate
from tui.state.filters import Filter
from tui.state.nodes import Change, Node, TreeRow
from tui.state.words import may_be_best

ROOT = 0
"""The number of the invisible root, which stands for the task."""

MANY = 200
"""From so many new candidates on, rows and bests are worked out once at the end, not one by one."""


class RunTree:
    """The candidates of one run, which of them are visible, and where the cursor is."""

    def __init__(self, allowed: Collection[str] = ()) -> None:
        self.allowed = allowed
        self.rows: list[int] = []
        self.marked: set[int] = set()
        self.filter: Filter | None = None
        self.following = False
        self.unseen = 0
        self._nodes: dict[int, Node] = {}
        self._top: list[int] = []
        self._shown: set[int] | None = None
        self._cursor: int | None = None
        self._cursor_row = 0

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, number: object) -> bool:
        return number in self._nodes

    def __iter__(self) -> Iterator[Candidate]:
        return (node.candidate for node in self._nodes.values())

    def candidate(self, number: int | None) -> Candidate | None:
        """The candidate with a number, if it is known."""
        node = self._nodes.get(number or ROOT)
        return node.candidate if node else None

    # The cursor

    @property
    def cursor(self) -> int | None:
        """The number of the candidate under the cursor."""
        return self._cursor

    @property
    def cursor_row(self) -> int:
        """The row under the cursor."""
        return self._cursor_row

    @property
    def current(self) -> Candidate | None:
        """The candidate under the cursor."""
        return self.candidate(self._cursor)

    def move_to_row(self, row: int) -> None:
        """Puts the cursor on a row, or on the nearest that exists."""
        if self.rows:
            self._cursor_row = max(0, min(row, len(self.rows) - 1))
            self._cursor = self.rows[self._cursor_row]

    def move_to(self, number: int) -> bool:
        """Puts the cursor on a candidate, unfolding what hides it; returns whether it can be seen."""
        if number not in self._nodes or (self._shown is not None and number not in self._shown):
            return False
        for ancestor in self._ancestors(number):
            self.unfold(ancestor)
        self._cursor = number
        self._cursor_row = self.rows.index(number)
        return True

    def follow(self, following: bool) -> None:
        """Lets the cursor go with the newest candidate, or not; either way what is new counts as seen."""
        self.following = following
        self.unseen = 0
        if following and self._nodes:
            self.move_to(max(self._nodes))

    # Growth

    def fold_in(self, candidates: Iterable[Candidate]) -> Change:
        """Takes in new and changed candidates, parents before children."""
        candidates = list(candidates)
        if len(candidates) > MANY:
            return self._fold_in_many(candidates)
        inserted: list[int] = []
        changed: set[int] = set()
        repaint_from: int | None = None
        stale_filter = False
        known = len(self._nodes)
        newest: int | None = None
        for candidate in candidates:
            number = candidate.number
            node = self._nodes.get(number)
            if node is None:
                newest = number
                place = self._insert(candidate)
                if place is not None:
                    row, first = place
                    inserted.append(row)
                    repaint_from = first if repaint_from is None else min(repaint_from, first)
                stale_filter = True
            else:
                stale_filter = stale_filter or node.candidate != candidate
                node.candidate = candidate
            changed.add(number)
            changed.update(self._refresh_best(number))
        if self.filter is not None and stale_filter:
            self._rebuild()
            repaint_from = 0
        if newest is not None and self._cursor is None:
            self.move_to_row(0)
        if newest is not None and self.following:
            self.move_to(newest)
        elif known:
            self.unseen += len(self._nodes) - known
        return Change(tuple(inserted), repaint_from, frozenset(changed))

    def _fold_in_many(self, candidates: list[Candidate]) -> Change:
        known = len(self._nodes)
        for candidate in candidates:
            node = self._nodes.get(candidate.number)
            if node is None:
                parent = candidate.parent if candidate.parent in self._nodes else None
                self._children(parent).append(candidate.number)
                self._nodes[candidate.number] = Node(candidate)
            else:
                node.candidate = candidate
        for number in sorted(self._nodes, reverse=True):
            self._nodes[number].best = self._best_of(self._nodes[number])
        self._rebuild()
        if self.following and len(self._nodes) > known:
            self.move_to(max(self._nodes))
        elif known:
            self.unseen += len(self._nodes) - known
        return Change((), 0, frozenset(candidate.number for candidate in candidates))

    def _best_of(self, node: Node) -> float | None:
        own = node.candidate.speedup if may_be_best(node.candidate, self.allowed) else None
        below = (self._nodes[child].best for child in node.children)
        return max((value for value in (own, *below) if value is not None), default=None)

    def _insert(self, candidate: Candidate) -> tuple[int, int] | None:
        """Adds a node as its parent's last child; returns its row and the first row to repaint."""
        number = candidate.number
        parent = candidate.parent if candidate.parent in self._nodes else None
        siblings = self._children(parent)
        before = siblings[-1] if siblings else None
        siblings.append(number)
        self._nodes[number] = Node(candidate)
        if self.filter is not None:
            return None
        if parent is None:
            row = len(self.rows)
            first = row
        else:
            try:
                parent_row = self.rows.index(parent)
            except ValueError:
                return None
            if self._nodes[parent].folded:
                return None
            row = self._end_of(parent_row)
            first = parent_row
            if before is not None:
                first = self.rows.index(before)
        self.rows.insert(row, number)
        if row <= self._cursor_row and self._cursor is not None:
            self._cursor_row += 1
        return row, first

    def _end_of(self, row: int) -> int:
        """The row after the visible subtree that starts at a row."""
        depth = self._nodes[self.rows[row]].candidate.depth
        end = row + 1
        while end < len(self.rows) and self._nodes[self.rows[end]].candidate.depth > depth:
            end += 1
        return end

    def _refresh_best(self, number: int) -> list[int]:
        """Works out the best of a node and of those above it, as far up as it changes."""
        touched = []
        current: int | None = number
        while current is not None:
            node = self._nodes[current]
            best = self._best_of(node)
            if best == node.best:
                break
            node.best = best
            touched.append(current)
            current = node.candidate.parent if node.candidate.parent in self._nodes else None
        return touched

    # Folding

    def fold(self, number: int) -> bool:
        """Hides what grew from a candidate; the cursor goes to it if it was inside."""
        node = self._nodes.get(number)
        if node is None or node.folded or not node.children:
            return False
        node.folded = True
        if number in self.rows:
            row = self.rows.index(number)
            end = self._end_of(row)
            del self.rows[row + 1 : end]
            if row < self._cursor_row < end:
                self.move_to_row(row)
            elif self._cursor_row >= end:
                self._cursor_row -= end - row - 1
        return True

    def unfold(self, number: int) -> bool:
        """Shows what grew from a candidate, as far as it is not folded itself."""
        node = self._nodes.get(number)
        if node is None or not node.folded:
            return False
        node.folded = False
        if number in self.rows:
            row = self.rows.index(number)
            below = list(self._visible(node.children))
            self.rows[row + 1 : row + 1] = below
            if self._cursor_row > row:
                self._cursor_row += len(below)
        return True

    def fold_or_parent(self) -> None:
        """Folds the candidate under the cursor, or goes to its parent."""
        if self._cursor is None or self.fold(self._cursor):
            return
        parent = self._nodes[self._cursor].candidate.parent
        if parent is not None:
            self.move_to(parent)

    def unfold_or_child(self) -> None:
        """Unfolds the candidate under the cursor, or goes to its first child."""
        if self._cursor is None or self.unfold(self._cursor):
            return
        for child in self._nodes[self._cursor].children:
            if self.move_to(child):
                return

    # Filter

    def set_filter(self, wanted: Filter | None) -> None:
        """Shows only what passes, with the candidates it grew from."""
        self.filter = wanted
        self._rebuild()
        if self._cursor is not None and self.rows and not self.matches(self._cursor):
            self.next_match()

    def _rebuild(self) -> None:
        if self.filter is None:
            self._shown = None
        else:
            self._shown = set()
            for number, node in self._nodes.items():
                if self.filter(node.candidate):
                    self._shown.add(number)
                    for ancestor in self._ancestors(number):
                        if ancestor in self._shown:
                            break
                        self._shown.add(ancestor)
        self.rows = list(self._visible(self._top))
        if self._cursor is not None and self._cursor in self.rows:
            self._cursor_row = self.rows.index(self._cursor)
        elif self.rows:
            first = next((row for row in range(len(self.rows)) if self.matches(self.rows[row])), 0)
            self.move_to_row(first)

    def matches(self, number: int) -> bool:
        """Whether a candidate passes the filter."""
        return self.filter is None or self.filter(self._nodes[number].candidate)

    @property
    def match_count(self) -> int:
        """How many visible candidates pass the filter."""
        return sum(self.matches(number) for number in self.rows)

    def next_match(self, forward: bool = True) -> bool:
        """Moves to the next row that passes the filter, around the end; returns whether there is one."""
        count = len(self.rows)
        for distance in range(1, count + 1):
            row = (self._cursor_row + (distance if forward else -distance)) % count
            if self.matches(self.rows[row]):
                self.move_to_row(row)
                return True
        return False

    # Looking

    def row(self, index: int, levels: int = 1_000) -> TreeRow:
        """What a row shows, with at most `levels` levels of guides."""
        number = self.rows[index]
        node = self._nodes[number]
        last: list[bool] = []
        current = number
        while len(last) < levels:
            parent = self._parent(current)
            if parent is None:
                break
            last.append(self._last_shown(parent) == current)
            current = parent
        depth = node.candidate.depth - 1
        return TreeRow(
            candidate=node.candidate,
            last=tuple(reversed(last)),
            hidden_levels=max(0, depth - len(last)),
            has_children=bool(node.children),
            folded=node.folded,
            best_below=max(
                (best for child in node.children if (best := self._nodes[child].best) is not None), default=None
            ),
            matches=self.matches(number),
        )

    def children(self, number: int | None) -> tuple[int, ...]:
        """The numbers of what grew directly from a candidate, or (None) from the task."""
        return tuple(self._children(number))

    def subtree(self, number: int) -> list[int]:
        """A candidate and everything that grew from it."""
        found = [number]
        for member in found:
            found.extend(self._nodes[member].children)
        return found

    def top_ancestor(self, number: int) -> int:
        """The candidate without a parent that a candidate grew from."""
        return next(reversed(list(self._ancestors(number))), number)

    def _children(self, number: int | None) -> list[int]:
        return self._top if number is None else self._nodes[number].children

    def _parent(self, number: int) -> int | None:
        parent = self._nodes[number].candidate.parent
        return parent if parent in self._nodes else None

    def _ancestors(self, number: int) -> Iterator[int]:
        """From the parent outwards."""
        parent = self._parent(number)
        while parent is not None:
            yield parent
            parent = self._parent(parent)

    def _last_shown(self, parent: int) -> int | None:
        children = self._nodes[parent].children
        if self._shown is None:
            return children[-1] if children else None
        return next((child for child in reversed(children) if child in self._shown), None)

    def _visible(self, numbers: list[int]) -> Iterator[int]:
        """Walks unfolded subtrees without recursion."""
        stack = [iter(numbers)]
        while stack:
            number = next(stack[-1], None)
            if number is None:
                stack.pop()
            elif self._shown is None or number in self._shown:
                yield number
                node = self._nodes[number]
                if node.children and not node.folded:
                    stack.append(iter(node.children))
