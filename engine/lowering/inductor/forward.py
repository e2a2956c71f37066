"""Turns the call that Inductor wrote into a forward method: allocations, launches and library calls by name."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils import _pytree as pytree

from engine.lowering.inductor.extern import library_call
from engine.lowering.inductor.kernels import PlainKernel
from engine.lowering.inductor.labels import stored_noun
from engine.lowering.inductor.launches import Launch, Launches, PendingLaunch
from engine.lowering.inductor.symbolic import SymbolicTask, TensorInput
from engine.lowering.inductor.syntax import called, names_in
from engine.lowering.inductor.tensors import Sizes, Tensor, contiguous, tuple_text
from engine.lowering.inductor.wrapper import NotReadable, Wrapper, WrittenKernel


@dataclass(frozen=True, slots=True)
class Forward:
    """A forward method before block sizes are chosen; `steps` are lines of Python or launches."""

    preamble: tuple[str, ...]
    steps: tuple[str | Launch, ...]
    result: str
    kernels: Mapping[str, PlainKernel]
    written: Mapping[str, WrittenKernel]


def build_forward(wrapper: Wrapper, task: SymbolicTask, result_names: Sequence[str | None]) -> Forward:
    """Translates the statements of the call.

    Args:
        wrapper: what Inductor wrote.
        task: what its arguments stand for.
        result_names: a name for each output where the reference has one.

    Raises:
        NotReadable: a statement is of a kind that has no plain form here.
    """
    return _Translation(wrapper, task, result_names).run()


class _Translation:
    def __init__(self, wrapper: Wrapper, task: SymbolicTask, result_names: Sequence[str | None]) -> None:
        self.wrapper, self.task = wrapper, task
        self.sizes = Sizes(task)
        self.launches = Launches(wrapper.kernels, self.sizes)
        self.tensors: dict[str, Tensor] = {}
        self.steps: list[str | PendingLaunch] = []
        self.unplaced: dict[str, Tensor] = {}
        self.used = {*task.forward_arguments, *task.sizes.names.values(), "self", "torch", "tl", "triton", "nn"}
        self.read_inputs: set[str] = set()
        self.names = self._result_variables(result_names)

    def run(self) -> Forward:
        self._bind_arguments()
        result = ""
        for statement in self.wrapper.statements:
            if isinstance(statement, ast.Return):
                result = self._return(statement)
            else:
                self._step(statement)
        self.launches.rewrite()
        steps = [self.launches.finished(s) if isinstance(s, PendingLaunch) else s for s in self.steps]
        preamble = self._preamble(steps, result)
        return Forward(tuple(preamble), tuple(steps), result, self.launches.kernels, self.launches.written_as)

    def _bind_arguments(self) -> None:
        count = len(self.task.size_names)
        for position, name in enumerate(self.wrapper.arguments):
            if position < count:
                self.sizes.define(name, ast.Name(self.task.size_names[position].lower(), ast.Load()))
                continue
            source = self.task.inputs[position - count]
            sizes = self.sizes.of_symbols(source.sizes)
            self.tensors[name] = Tensor(source.path, sizes, contiguous(sizes))

    def _result_variables(self, wishes: Sequence[str | None]) -> dict[str, str]:
        """Names for the buffers that are returned, and for those whose memory they reuse."""
        returned: list[str] = []
        aliases: dict[str, str] = {}
        for statement in self.wrapper.statements:
            if isinstance(statement, ast.Return) and isinstance(statement.value, ast.Tuple):
                returned = [next(iter(names_in(e) - {"reinterpret_tensor"}), "") for e in statement.value.elts]
            elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Name):
                aliases[ast.unparse(statement.targets[0])] = statement.value.id
        names: dict[str, str] = {}
        for position, buffer in enumerate(returned):
            if not buffer.startswith("buf") or buffer in names:
                continue
            wish = wishes[position] if position < len(wishes) else None
            name = self._free(wish if wish and wish not in self.used else "output")
            while buffer:
                names[buffer] = name
                buffer = aliases.get(buffer, "")
        return names

    def _free(self, wish: str) -> str:
        name, number = wish, 2
        while name in self.used:
            name, number = f"{wish}_{number}", number + 1
        self.used.add(name)
        return name

    def _step(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Delete):
            return
        if isinstance(statement, ast.Expr):
            self._effect(statement.value)
            return
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            raise NotReadable(f"The lowered call holds a statement that is not known: {ast.unparse(statement)[:80]}.")
        target, value = ast.unparse(statement.targets[0]), statement.value
        function = called(value)
        if re.fullmatch(r"u\d+", target):
            raise NotReadable("The shape of a result depends on the values of an input.")
        if target in self.wrapper.arguments or function.endswith("get_raw_stream") or ast.unparse(value) == "args":
            return
        if function.endswith(".size") and target.endswith("_size"):
            return
        if target in self.task.sizes.names:
            return
        if function.startswith("empty_strided") and isinstance(value, ast.Call):
            self._allocate(target, value)
        elif isinstance(value, ast.Name) and value.id in self.tensors:
            self._alias(target, value.id)
        elif function == "reinterpret_tensor":
            self._assign(target, self._tensor_expression(value), self._view_of(value))
        elif re.fullmatch(r"ps\d+|\w+numel", target):
            self.sizes.define(target, value)
        elif isinstance(value, ast.Subscript) and ast.unparse(value.value) in self.tensors:
            self._assign(target, f"{self._tensor_expression(value.value)}[{ast.unparse(value.slice)}]", None)
        elif isinstance(value, ast.Call) and function.startswith(("extern_kernels.", "torch.ops.aten.", "aten.")):
            self._assign(target, self._library_call(value, None), None)
        else:
            raise NotReadable(f"The lowered call holds a statement that is not known: {ast.unparse(statement)[:80]}.")

    def _effect(self, node: ast.expr) -> None:
        function = called(node)
        if function in ("args.clear", "torch.cuda.set_device") or function.startswith("assert_"):
            if function == "assert_size_stride" and isinstance(node, ast.Call):
                self._learn(node)
            return
        if isinstance(node, ast.Call) and function.endswith(".run"):
            self._launch(function.removesuffix(".run"), list(node.args))
        elif isinstance(node, ast.Call) and function.startswith("extern_kernels."):
            out = next((k.value for k in node.keywords if k.arg == "out"), None)
            if out is None:
                raise NotReadable(f"The library call {function} has no output.")
            if isinstance(out, ast.Name):
                # The variable takes the result; that it reuses memory of a dead buffer does not matter.
                call = self._library_call(node, None)
                self.unplaced.pop(out.id, None)
                self.steps.append(f"{self.tensors[out.id].name} = {call}")
            else:
                self.steps.append(self._library_call(node, self._tensor_expression(out)))
        elif isinstance(node, ast.Call) and function.startswith(("torch.ops.aten.", "aten.")):
            self.steps.append(self._library_call(node, None))
        else:
            raise NotReadable(f"The lowered call holds a step that is not known: {ast.unparse(node)[:80]}.")

    def _learn(self, node: ast.Call) -> None:
        name = ast.unparse(node.args[0])
        if name in self.tensors and self.tensors[name].sizes is None:
            self.tensors[name].sizes = self.sizes.texts(node.args[1])
            self.tensors[name].strides = self.sizes.texts(node.args[2])

    def _allocate(self, target: str, value: ast.Call) -> None:
        sizes, strides = self.sizes.texts(value.args[0]), self.sizes.texts(value.args[1])
        name = self.names.get(target) or self._free(self._intermediate(target))
        tensor = Tensor(name, sizes, strides, ast.unparse(value.args[2]))
        self.names[target] = name
        self.tensors[target] = self.unplaced[target] = tensor

    def _intermediate(self, buffer: str) -> str:
        """A name for an intermediate: by the library call or the reduction that fills it."""
        for statement in self.wrapper.statements:
            node = statement.value if isinstance(statement, ast.Expr) else None
            if not isinstance(node, ast.Call):
                continue
            if any(k.arg == "out" and ast.unparse(k.value) == buffer for k in node.keywords):
                return {"mm": "product", "addmm": "product", "bmm": "product"}.get(
                    called(node).rpartition(".")[2], "value"
                )
            kernel = self.wrapper.kernels.get(called(node).removesuffix(".run"))
            if kernel is not None:
                names = [p.arg for p in kernel.function.args.args]
                for name, argument in zip(names, node.args, strict=False):
                    if ast.unparse(argument) == buffer and name.startswith(("out_ptr", "in_out_ptr")):
                        return stored_noun(kernel, name)
        return "intermediate"

    def _place(self, name: str) -> None:
        """Writes the allocation of a buffer when it is first needed."""
        tensor = self.unplaced.pop(name, None)
        if tensor is None:
            return
        assert tensor.sizes is not None and tensor.strides is not None
        like = next((i for i in self.task.inputs if self._same_form(i, tensor)), None)
        rest = f"device={self._device()}, dtype={tensor.dtype})"
        sizes = tuple_text(tensor.sizes)
        if like is not None:
            self.steps.append(f"{tensor.name} = torch.empty_like({like.path})")
            self.read_inputs.add(like.path)
        elif self.sizes.packed(tensor):
            self.steps.append(f"{tensor.name} = torch.empty({sizes}, {rest}")
        else:
            self.steps.append(f"{tensor.name} = torch.empty_strided({sizes}, {tuple_text(tensor.strides)}, {rest}")

    def _same_form(self, source: TensorInput, tensor: Tensor) -> bool:
        assert tensor.sizes is not None
        index = len(self.task.size_names) + self.task.inputs.index(source)
        return (
            not source.is_attribute
            and str(self.task.arguments[index].dtype) == tensor.dtype
            and self.sizes.equal(self.sizes.of_symbols(source.sizes), tensor.sizes)
            and self.sizes.packed(tensor)
        )

    def _device(self) -> str:
        path = next((i.path for i in self.task.inputs), None)
        if path is None:
            raise NotReadable("The task has neither an input nor a parameter that says where to compute.")
        return f"{path}.device"

    def _alias(self, target: str, source: str) -> None:
        if source in self.unplaced:
            self.unplaced[target] = self.unplaced.pop(source)
        self.tensors[target] = self.tensors[source]

    def _assign(self, target: str, text: str, form: Tensor | None) -> None:
        name = self.names.get(target) or self._free(self._intermediate_of(text))
        self.names[target] = name
        self.tensors[target] = Tensor(name, form.sizes if form else None, form.strides if form else None)
        self.steps.append(f"{name} = {text}")

    @staticmethod
    def _intermediate_of(text: str) -> str:
        if "conv" in text:
            return "convolved"
        return "product" if re.search(r"torch\.(mm|addmm|bmm|baddbmm)\(", text) else "intermediate"

    def _view_of(self, node: ast.expr) -> Tensor | None:
        if not isinstance(node, ast.Call):
            return None
        sizes = self.sizes.texts(node.args[1])
        return Tensor("", sizes, self.sizes.texts(node.args[2]))

    def _tensor_expression(self, node: ast.expr) -> str:
        """Text of a tensor argument: a variable or a view of one."""
        if isinstance(node, ast.Name):
            if node.id not in self.tensors:
                raise NotReadable(f"The lowered call uses a constant tensor ({node.id}) that the module cannot hold.")
            self._place(node.id)
            tensor = self.tensors[node.id]
            self.read_inputs.add(tensor.name)
            return tensor.name
        if called(node) == "reinterpret_tensor" and isinstance(node, ast.Call):
            return self._view(node)
        if isinstance(node, ast.Constant | ast.Tuple | ast.List | ast.UnaryOp | ast.BinOp):
            return self.sizes.text(node)
        raise NotReadable(f"The lowered call passes a value that is not known: {ast.unparse(node)[:80]}.")

    def _view(self, node: ast.Call) -> str:
        base = self._tensor_expression(node.args[0])
        source = self.tensors[node.args[0].id] if isinstance(node.args[0], ast.Name) else None
        form = self._view_of(node)
        assert form is not None
        offset = self.sizes.text(node.args[3]) if len(node.args) > 3 else "0"
        return self.sizes.view(base, source, form, offset)

    def _library_call(self, node: ast.Call, out: str | None) -> str:
        arguments = [self._argument(a) for a in node.args]
        named = {k.arg: self._argument(k.value) for k in node.keywords if k.arg and k.arg != "out"}
        return library_call(called(node), arguments, {**named, "out": out} if out else named)

    def _argument(self, node: ast.expr) -> str:
        if (isinstance(node, ast.Name) and node.id in self.tensors) or called(node):
            return self._tensor_expression(node)
        if isinstance(node, ast.List | ast.Tuple):
            parts = ", ".join(self._argument(e) for e in node.elts)
            return f"[{parts}]" if isinstance(node, ast.List) else f"({parts}{',' if len(node.elts) == 1 else ''})"
        return self.sizes.text(node)

    def _launch(self, kernel: str, arguments: list[ast.expr]) -> None:
        parameters = self.launches.parameters(kernel)
        texts = [
            self._tensor_expression(argument) if "ptr" in parameter else self.sizes.text(argument)
            for parameter, argument in zip(parameters, arguments, strict=False)
        ]
        self.steps.append(self.launches.add(kernel, texts))

    def _return(self, statement: ast.Return) -> str:
        assert isinstance(statement.value, ast.Tuple)
        values = ["None" if ast.unparse(e) == "None" else self._tensor_expression(e) for e in statement.value.elts]
        count = self.task.output_structure[0].num_leaves
        return _top_level(pytree.tree_unflatten(values[-count:], self.task.output_structure[0]))

    def _preamble(self, steps: Sequence[str | Launch], result: str) -> list[str]:
        """Lines that make inputs contiguous and read the sizes that the steps use."""
        texts = [
            step if isinstance(step, str) else " ".join((*step.arguments, *step.extents.values())) for step in steps
        ]
        texts.append(result)
        wanted = {name for text in texts for name in re.findall(r"\b[a-z_]\w*\b", text)} & set(
            self.task.sizes.names.values()
        )
        arguments = [i for i in self.task.inputs if not i.is_attribute]
        lines = [f"{i.path} = {i.path}.contiguous()" for i in arguments if i.path in self.read_inputs]
        for source in sorted(self.task.inputs, key=lambda i: i.is_attribute):
            forms = list(self.sizes.of_symbols(source.sizes))
            new = [form for form in forms if form in wanted]
            if not new:
                continue
            plain = [form if form in wanted else "_" for form in forms]
            if len(forms) > 1 and len(new) > 1 and len(set(new)) == len(new):
                lines.append(f"{', '.join(plain)} = {source.path}.shape")
            else:
                lines += [f"{form} = {source.path}.shape[{forms.index(form)}]" for form in dict.fromkeys(new)]
            wanted -= set(new)
        for name in sorted(wanted):
            lines.append(self._derived(name))
        return lines

    def _derived(self, name: str) -> str:
        for source in self.task.inputs:
            for index, size in enumerate(source.sizes):
                form = self.sizes.of_symbols([size])[0]
                if match := re.fullmatch(rf"(\d+) \* {name}", form):
                    return f"{name} = {source.path}.shape[{index}] // {match.group(1)}"
        raise NotReadable(f"The size {name} cannot be read from the shape of an input or a parameter.")


def _top_level(value: Any) -> str:
    return ", ".join(map(_nested, value)) if isinstance(value, tuple) and len(value) > 1 else _nested(value)


def _nested(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return f"({', '.join(map(_nested, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(map(_nested, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_nested(item)}" for key, item in value.items()) + "}"
    raise NotReadable(f"The reference returns a {type(value).__name__}, which is not written here.")
