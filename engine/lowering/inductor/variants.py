"""Structures that TorchInductor gives for a task, each rewritten as a plain Triton module.

Runs in the lowering process only: it imports torch and makes the process pretend that it has a GPU.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from engine.lowering.inductor import capture
from engine.lowering.inductor.capture import Settings
from engine.lowering.inductor.forward import Forward, build_forward
from engine.lowering.inductor.module import Shell, choices, read_shell, write_module
from engine.lowering.inductor.symbolic import NotSymbolic, SizesFixed, SymbolicTask, symbolic_task
from engine.lowering.inductor.wrapper import NotReadable, read_wrapper
from engine.lowering.structure import Parameters, Structure

_VARIANTS: tuple[tuple[str, str, Settings], ...] = (
    ("default", "As TorchInductor lowers it.", Settings()),
    ("persistent", "Each program holds whole rows at once.", Settings(persistent=True)),
    ("looped", "Each program walks along its rows.", Settings(persistent=False)),
    (
        "persistent_two_step",
        "Each program holds whole rows; the variance is a mean of squared deviations.",
        Settings(persistent=True, two_step_variance=True),
    ),
    ("two_step", "The variance is a mean of squared deviations, in two walks.", Settings(two_step_variance=True)),
    ("separate", "Maximum and sum of a softmax are found in two walks.", Settings(config={"online_softmax": False})),
    (
        "tiled",
        "Elementwise work is cut into two-dimensional tiles.",
        Settings(config={"triton.prefer_nd_tiling": True, "triton.max_tiles": 2}),
    ),
    ("split_4", "Each reduction is cut into four parts, reduced by two kernels.", Settings(split=4)),
    ("split_16", "Each reduction is cut into sixteen parts, reduced by two kernels.", Settings(split=16)),
    ("unfused", "One kernel for each step, without fusion.", Settings(config={"max_fusion_size": 1})),
    (
        "matmul",
        "Matrix products are Triton kernels with their epilogue.",
        Settings(config={"triton.native_matmul": True}),
    ),
    (
        "matmul_persistent",
        "Matrix products are Triton kernels; each program holds whole rows of reductions.",
        Settings(config={"triton.native_matmul": True}, persistent=True),
    ),
)


@dataclass(frozen=True, slots=True)
class _Prepared:
    task: SymbolicTask
    graph: Any
    shell: Shell


def structures(
    task_source: str, overrides: Mapping[str, Any], arch: str, dtype: str | None = None
) -> tuple[list[Structure], list[str]]:
    """Every distinct structure that Inductor gives for a task, and one sentence for each that it could not give.

    Args:
        task_source: text of the task's module, in KernelBench format.
        overrides: values that replace the module's constants for the large form.
        arch: the architecture to lower for, such as "sm_90".
        dtype: what floating inputs and weights are cast to; None keeps the task's own.
    """
    reasons: list[str] = []
    found = [item for item in each_structure(task_source, overrides, arch, reasons, dtype)]
    return found, reasons


def each_structure(
    task_source: str, overrides: Mapping[str, Any], arch: str, reasons: list[str], dtype: str | None = None
) -> Iterator[Structure]:
    """Like `structures`, one at a time as they are ready; sentences are appended to `reasons`."""
    capture.pretend_device(arch)
    try:
        prepared = _prepare(task_source, overrides, reasons, dtype)
    except (NotSymbolic, NotReadable, capture.LoweringFailed) as error:
        reasons.append(f"inductor: {error}")
        return
    seen: set[str] = set()
    problems: set[str] = set()
    for name, idea, settings in _VARIANTS:
        try:
            structure = _structure(prepared, name, idea, settings)
            text = structure.render(structure.defaults)
        except (capture.LoweringFailed, NotReadable, NotSymbolic, ValueError) as error:
            sentence = str(error)
            if sentence not in problems:
                problems.add(sentence)
                reasons.append(f"inductor/{name}: {sentence}")
            continue
        key = _without_docstring(text)
        if key not in seen:
            seen.add(key)
            yield structure


def _prepare(source: str, overrides: Mapping[str, Any], reasons: list[str], dtype: str | None) -> _Prepared:
    """Traces the task with as many sizes variable as the reference and Inductor allow.

    A task that declares a small form must keep its sizes variable. Another gives up, with a note, those that the
    reference or the lowering fixes.
    """
    shell = read_shell(source)
    fixed: frozenset[str] = frozenset()
    while True:
        task = symbolic_task(source, overrides, fixed, dtype)
        try:
            prepared = _Prepared(task, _trace(task), shell)
            _lower(prepared, Settings())
        except SizesFixed as error:
            if task.varies_by_declaration or not error.names - fixed:
                raise
            fixed |= error.names
            continue
        if fixed:
            reasons.append(f"inductor: The kernels are written for fixed sizes ({', '.join(sorted(fixed))}).")
        return prepared


def _trace(task: SymbolicTask) -> Any:
    try:
        graph = capture.trace(task.function, task.arguments, task.sizes)
    except Exception as error:
        line = next((part.strip() for part in str(error).splitlines() if part.strip()), "no reason given")
        raise NotSymbolic(f"The reference cannot be traced ({type(error).__name__}: {line[:200]}).") from error
    if fixed := task.sizes.fixed():
        raise SizesFixed(fixed)
    return graph


def _lower(prepared: _Prepared, settings: Settings) -> str:
    task = prepared.task
    lowered = capture.lower(prepared.graph, task.arguments, task.sizes, settings)
    if fixed := task.sizes.fixed():
        raise SizesFixed(fixed)
    if task.varies_by_declaration and (broken := task.sizes.broken_guards(task.second_values)):
        raise NotSymbolic(f"The lowering assumes {broken[0]}, which does not hold at the small form.")
    return lowered.text


def _structure(prepared: _Prepared, name: str, idea: str, settings: Settings) -> Structure:
    text = _lower(prepared, settings)
    try:
        forward = build_forward(read_wrapper(text), prepared.task, prepared.shell.result_names)
    except NotReadable:
        raise
    except Exception as error:
        # What Inductor writes is open-ended; one form that is not understood must not end the others.
        raise NotReadable(f"The lowered text could not be rewritten ({type(error).__name__}: {error}).") from error
    defaults, options = choices(forward)
    return Structure(f"inductor/{name}", idea, defaults, options, _Renderer(prepared.shell, forward, idea))


@dataclass(frozen=True, slots=True)
class _Renderer:
    shell: Shell
    forward: Forward
    idea: str

    def __call__(self, parameters: Parameters) -> str:
        return write_module(self.shell, self.forward, self.idea, parameters)


def _without_docstring(text: str) -> str:
    tree = ast.parse(text)
    return ast.unparse(ast.Module(tree.body[1:], []))
