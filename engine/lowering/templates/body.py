"""Writes the statements of a kernel that compute values, with names where they help a reader."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from engine.lowering.templates.graph import Value
from engine.lowering.templates.names import Names
from engine.lowering.templates.pointwise import ATOM, POINTWISE, at_masked_lanes, expression, repeats_operand

_LONGEST = 64
_SPOKEN = {
    "exp": "exponentials",
    "sigmoid": "gate",
    "gelu": "activated",
    "gelu_tanh": "activated",
    "relu": "activated",
    "tanh": "activated",
    "square": "squares",
    "rsqrt": "inverse",
    "sqrt": "root",
    "where": "chosen",
    "lt": "below",
    "gt": "above",
    "ne": "valid",
    "div": "quotient",
    "mul": "scaled",
    "add": "added",
    "sub": "difference",
}
_REDUCED = {"sum": "row_sum", "max": "largest", "min": "smallest"}


class Body:
    """The lines of a kernel, and the texts of the values that are known so far."""

    def __init__(self, names: Names, texts: Mapping[Value, str]) -> None:
        self._names = names
        self.texts: dict[Value, tuple[str, int]] = {value: (text, ATOM) for value, text in texts.items()}
        self.lanes: dict[Value, float | None] = {
            value: None if value.constant is None else float(value.constant) for value in texts
        }
        self.lines: list[str] = []
        self._depth = 0

    def line(self, text: str = "") -> None:
        """Adds one statement at the current depth."""
        self.lines += ["    " * self._depth + line if line else "" for line in text.split("\n")]

    def fresh(self, wanted: str) -> str:
        """A name that the kernel does not use yet."""
        return self._names.fresh(wanted)

    def deeper(self, steps: int = 1) -> None:
        """Opens (or with a negative number closes) blocks."""
        self._depth += steps

    def define(self, value: Value, text: str, name: str = "", lanes: float | None = None) -> str:
        """Adds `name = text` for a value; `lanes` is what it holds outside the tensor."""
        name = self._names.fresh(name or name_for(value))
        self.line(f"{name} = {text}")
        self.texts[value] = (name, ATOM)
        self.lanes[value] = lanes
        return name

    def know(self, value: Value, text: str, lanes: float | None = None) -> None:
        """Records the text of a value that needs no statement of its own."""
        self.texts[value] = (text, ATOM)
        self.lanes[value] = lanes

    def forget(self, values: Iterable[Value]) -> None:
        """Forgets values whose names do not outlive a block."""
        for value in values:
            self.texts.pop(value, None)
            self.lanes.pop(value, None)

    def compute(self, wanted: Sequence[Value], reduce: Callable[[Value], str] | None = None) -> None:
        """Adds what the wanted values need; pointwise values only, and reductions where `reduce` writes them."""
        pending = self._pending(wanted)
        users: dict[Value, list[Value]] = {value: [] for value in pending}
        for value in pending:
            for source in value.inputs:
                if source in users:
                    users[source].append(value)
        for value in pending:
            if value.op == "reduce":
                assert reduce is not None
                text = reduce(value)
                if len(users[value]) == 1 and value not in wanted and not value.label:
                    self.know(value, text)
                else:
                    self.define(value, text)
                continue
            if value.op == "reshape":
                self.texts[value] = self.texts[value.inputs[0]]
                self.lanes[value] = self.lanes.get(value.inputs[0])
                continue
            assert value.op in POINTWISE, value.op
            text, binding = expression(value, [self.texts[source] for source in value.inputs])
            lanes = at_masked_lanes(value, [self.lanes.get(source) for source in value.inputs])
            uses = len(users[value]) + (value in wanted and bool(users[value]))
            repeated = any(repeats_operand(user) and user.inputs[0] is value for user in users[value])
            used_often = uses > 1 or repeated
            worth_a_name = binding != ATOM and (used_often or value.label or len(text) > _LONGEST)
            if worth_a_name or (used_often and "(" in text):
                self.define(value, text, lanes=lanes)
            else:
                self.texts[value] = (text, binding)
                self.lanes[value] = lanes

    def text(self, value: Value) -> str:
        """The text of a value that has been computed."""
        return self.texts[value][0]

    def short(self, value: Value) -> str:
        """The text of a value that has been computed, given a name first if it is long."""
        if len(self.text(value)) > _LONGEST:
            self.define(value, self.text(value), "result", self.lanes.get(value))
        return self.text(value)

    def clean(self, value: Value, mask: str, identity: float) -> str:
        """The text of a value with `identity` outside the tensor, so that a reduction may cover all lanes."""
        text = self.text(value)
        if not mask or self.lanes.get(value) == identity:
            return text
        neutral = f"float('{identity}')" if math.isinf(identity) else repr(identity)
        return f"tl.where({mask}, {text}, {neutral})"

    def _pending(self, wanted: Sequence[Value]) -> list[Value]:
        done: dict[Value, None] = {}

        def visit(value: Value) -> None:
            if value in self.texts or value in done:
                return
            for source in value.inputs:
                visit(source)
            done[value] = None

        for value in wanted:
            visit(value)
        return list(done)


def name_for(value: Value) -> str:
    """A name for a value: its label, or what its operation suggests."""
    if value.op == "reduce":
        return value.label or _REDUCED[str(value.settings["kind"])]
    return value.label or _SPOKEN.get(value.op, "value")
