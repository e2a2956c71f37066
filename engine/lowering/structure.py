"""What a structure is: one way of writing a kernel for a task, with the parameters that may vary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Value = int | str | bool
Parameters = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Structure:
    """One way of writing a task's kernels.

    `name` is unique within the task ("softmax/one_pass", "inductor/default"). `idea` is one line for
    people, without the parameters. `choices` gives, for each parameter, the values a local step may
    take, in order (so that neighbours are next to each other); `defaults` has one value for each.
    `render` turns parameters into the text of a complete module that defines `ModelNew`; it is a pure
    function and raises ValueError with one sentence for a combination that makes no sense.
    """

    name: str
    idea: str
    defaults: Parameters
    choices: Mapping[str, tuple[Value, ...]]
    render: Callable[[Parameters], str]


def describe(parameters: Parameters) -> str:
    """Says parameters in one short line: `BLOCK 1024, num_warps 8`."""
    return ", ".join(f"{name} {value}" for name, value in parameters.items())
