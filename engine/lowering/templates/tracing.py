"""Runs a task's reference on fake tensors and keeps what it did as a torch.fx graph.

No memory is used whatever the sizes. Where the task has a small form, it is traced too: numbers that
differ between the two traces depend on sizes (see `sizes.py`).
"""

from __future__ import annotations

import ast
import linecache
import re
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from engine.lowering.casting import cast
from engine.lowering.templates.graph import Mismatch
from engine.lowering.templates.names import host_name

_FILE = "<task>"


@dataclass(frozen=True, slots=True)
class Trace:
    """One traced form: its nodes in order, and for placeholders the host text they come from.

    `arguments` maps the arguments of forward to their types, `renamed` those that go by another name inside
    it to their own; `returns` is `tensor`, `tuple` or `list`.
    """

    nodes: tuple[torch.fx.Node, ...]
    texts: Mapping[str, str]
    arguments: Mapping[str, str]
    sizes: Mapping[str, tuple[int, ...]]
    attributes: Mapping[str, float]
    returns: str
    renamed: Mapping[str, str]


def forward_of(source: str) -> ast.FunctionDef:
    """The syntax tree of `Model.forward`.

    Raises:
        Mismatch: there is none.
    """
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.ClassDef) and statement.name == "Model":
            for member in statement.body:
                if isinstance(member, ast.FunctionDef) and member.name == "forward":
                    return member
    raise Mismatch("The task defines no class Model with a method forward.")


def trace(source: str, overrides: Mapping[str, object], dtype: str | None = None) -> Trace:
    """Traces the form of the task in which `overrides` replace module constants, cast to `dtype` where there is one.

    Raises:
        Mismatch: the reference cannot be traced, with the first line of PyTorch's reason.
    """
    linecache.cache[_FILE] = (len(source), None, source.splitlines(keepends=True), _FILE)
    module = types.ModuleType("task")
    try:
        exec(compile(source, _FILE, "exec"), module.__dict__)
        module.__dict__.update(overrides)
        with FakeTensorMode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, inputs = cast(module.Model(*module.get_init_inputs()), module.get_inputs(), dtype)
            if not all(isinstance(value, (torch.Tensor, float, int)) for value in inputs):
                raise Mismatch("An input of the task is neither a tensor nor a number.")
            table = torch.export.default_decompositions()
            del table[torch.ops.aten.scaled_dot_product_attention.default]
            program = torch.export.export(model, tuple(inputs), strict=False).run_decompositions(table)
    except Mismatch:
        raise
    except Exception as error:
        reason = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise Mismatch(f"The reference cannot be traced: {type(error).__name__}: {reason.rstrip('.')}.") from error
    signature = program.graph_signature
    if signature.buffers_to_mutate or signature.user_inputs_to_mutate:
        raise Mismatch("The reference changes a buffer or an input in place.")
    own_names = [argument.arg for argument in forward_of(source).args.args][1:]
    names = [host_name(name) for name in own_names]
    if len(names) < len(inputs):
        raise Mismatch("The reference takes its inputs as *args.")
    texts = {str(name): f"self.{path}" for name, path in signature.inputs_to_parameters.items()}
    texts |= {str(name): f"self.{path}" for name, path in signature.inputs_to_buffers.items()}
    texts |= {str(name): argument for name, argument in zip(signature.user_inputs, names, strict=False)}
    attributes = dict(_numbers(model))
    given = dict(zip(names, inputs, strict=False))
    attributes |= {name: value for name, value in given.items() if isinstance(value, float)}
    result = program.call_spec.out_spec
    if not result.is_leaf() and (result.type not in (tuple, list) or result.num_children != result.num_leaves):
        raise Mismatch("The reference returns something else than a tensor or a plain tuple or list of tensors.")
    return Trace(
        tuple(program.graph.nodes),
        texts,
        {
            name: "torch.Tensor" if isinstance(value, torch.Tensor) else type(value).__name__
            for name, value in given.items()
        },
        {name: tuple(value.shape) for name, value in given.items() if isinstance(value, torch.Tensor)},
        attributes,
        "tensor" if result.is_leaf() else result.type.__name__,
        {name: own for name, own in zip(names, own_names, strict=True) if name != own},
    )


def small_form(source: str) -> Mapping[str, object] | None:
    """The constants of the task's small form, or None where it names none."""
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == "SMALL" for t in statement.targets
        ):
            small = ast.literal_eval(statement.value)
            return small if isinstance(small, dict) else None
    return None


def labels(source: str, nodes: Sequence[torch.fx.Node]) -> dict[str, str]:
    """Names for nodes: the variables to which the source of `forward` assigns them."""
    forward = forward_of(source)
    targets: dict[int, list[str]] = {}
    for statement in ast.walk(forward):
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            found = _target_names(statement.targets[0])
            for number in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1):
                targets[number] = found
    last: dict[int, torch.fx.Node] = {}
    result: dict[str, str] = {}
    for node in nodes:
        line = _line(node, forward)
        if line is None or line not in targets:
            continue
        if len(targets[line]) == 1:
            last[line] = node
        elif getattr(node.target, "__name__", "") == "getitem" and isinstance(node.args[1], int):
            result[node.name] = targets[line][node.args[1]]
    result.update({node.name: targets[line][0] for line, node in last.items()})
    return result


def _target_names(target: ast.expr) -> list[str]:
    if isinstance(target, ast.Tuple) and all(isinstance(element, ast.Name) for element in target.elts):
        return [element.id for element in target.elts if isinstance(element, ast.Name)]
    return [target.id] if isinstance(target, ast.Name) else []


def _line(node: torch.fx.Node, forward: ast.FunctionDef) -> int | None:
    stack = str(node.meta.get("stack_trace") or "")
    lines = [int(line) for line in re.findall(rf'File "{_FILE}", line (\d+), in forward', stack)]
    inside = [line for line in lines if forward.lineno <= line <= (forward.end_lineno or forward.lineno)]
    return inside[-1] if inside else None


def _numbers(model: torch.nn.Module) -> Iterator[tuple[str, float]]:
    """The plain float attributes of the model and its parts, by host text."""
    for path, part in model.named_modules():
        prefix = f"self.{path}." if path else "self."
        for name, value in vars(part).items():
            if isinstance(value, float):
                yield prefix + name, value
