"""Turns the call that Inductor wrote into a forward method: allocations, launches and library calls by name."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.lowering.inductor_kernels import PlainKernel, rewrite_kernel
from engine.lowering.inductor_symbolic import SymbolicTask, TensorInput
from engine.lowering.inductor_syntax import called, expression, names_in, substitute
from engine.lowering.inductor_wrapper import NotReadable, Wrapper, WrittenKernel

GRID_LIMIT = 65535
"""Most programs that CUDA starts along the second and third axis of a grid."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch: the kernel's readable name, its tensors and sizes in order, and the extent of each axis.

    `many_rows` says that programs along the second axis continue along the third, since a grid has a limit there.
    """

    kernel: str
    arguments: tuple[str, ...]
    extents: Mapping[str, str]
    many_rows: bool


@dataclass(frozen=True, slots=True)
class Forward:
    """A forward method before block sizes are chosen; `steps` are lines of Python or launches."""

    preamble: tuple[str, ...]
    steps: tuple[str | Launch, ...]
    result: str
    kernels: Mapping[str, PlainKernel]
    written: Mapping[str, WrittenKernel]


@dataclass(slots=True)
class _Tensor:
    """What is known of a tensor variable: its name in the text, and its sizes and strides where known."""

    name: str
    sizes: tuple[str, ...] | None = None
    strides: tuple[str, ...] | None = None
    dtype: str = ""
    pending: bool = field(default=False)


def build_forward(
    wrapper: Wrapper, task: SymbolicTask, result_names: Sequence[str | None], kernel_label: str
) -> Forward:
    """Translates the statements of the call.

    Args:
        wrapper: what Inductor wrote.
        task: what its arguments stand for.
        result_names: a name for each output where the reference has one.
        kernel_label: first part of the kernels' names, used where no operation gives one.

    Raises:
        NotReadable: a statement is of a kind that has no plain form here.
    """
    return _Translation(wrapper, task, result_names, kernel_label).run()


class _Translation:
    def __init__(self, wrapper: Wrapper, task: SymbolicTask, result_names: Sequence[str | None], label: str) -> None:
        self.wrapper, self.task, self.label = wrapper, task, label
        self.symbols: dict[str, ast.expr] = {s: ast.Name(n, ast.Load()) for s, n in task.sizes.names.items()}
        self.tensors: dict[str, _Tensor] = {}
        self.steps: list[str | Launch] = []
        self.waiting: dict[str, tuple[_Tensor, str]] = {}
        self.launches: list[tuple[str, list[ast.expr]]] = []
        self.used: set[str] = {
            *task.forward_arguments,
            *task.sizes.names.values(),
            "self",
            "torch",
            "tl",
            "triton",
            "nn",
        }
        self.read_inputs: set[str] = set()
        self.many_rows: set[str] = set()
        self.names = self._result_variables(result_names)
        self.environments = self._environments()

    def run(self) -> Forward:
        self._bind_arguments()
        result = ""
        for statement in self.wrapper.statements:
            if isinstance(statement, ast.Return):
                result = self._return(statement)
            else:
                self._step(statement)
        kernels, written = self._rewrite_kernels()
        steps = [self._finish(step, kernels) if isinstance(step, tuple) else step for step in self.steps]
        return Forward(tuple(self._preamble(steps, result)), tuple(steps), result, kernels, written)

    def _environments(self) -> list[dict[str, Any]]:
        first = {name: int(size.node.hint) for name, size in self._sized()}
        return [first, {name: self.task.second_values.get(name, value) for name, value in first.items()}]

    def _sized(self) -> list[tuple[str, Any]]:
        return [(n.lower(), self.task.arguments[i]) for i, n in enumerate(self.task.size_names)]

    def _bind_arguments(self) -> None:
        count = len(self.task.size_names)
        for position, name in enumerate(self.wrapper.arguments):
            if position < count:
                self.symbols[name] = ast.Name(self.task.size_names[position].lower(), ast.Load())
                continue
            source = self.task.inputs[position - count]
            sizes = tuple(self._size(expression(str(s))) for s in source.sizes)
            self.tensors[name] = _Tensor(source.path, sizes, _contiguous(sizes))

    def _size(self, node: ast.expr) -> str:
        changed: Any = substitute([ast.Expr(node)], self.symbols)[0]
        return _tidy(ast.unparse(changed.value))

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
            self.symbols[target] = substitute([ast.Expr(value)], self.symbols)[0].value  # type: ignore[attr-defined]
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
                self.waiting.pop(out.id, None)
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
            self.tensors[name].sizes = tuple(self._size(e) for e in _elements(node.args[1]))
            self.tensors[name].strides = tuple(self._size(e) for e in _elements(node.args[2]))

    def _allocate(self, target: str, value: ast.Call) -> None:
        sizes = tuple(self._size(e) for e in _elements(value.args[0]))
        strides = tuple(self._size(e) for e in _elements(value.args[1]))
        dtype = ast.unparse(value.args[2])
        tensor = _Tensor(self.names.get(target) or self._free(self._intermediate(target)), sizes, strides, dtype)
        self.names[target] = tensor.name
        self.tensors[target] = tensor
        self.waiting[target] = (tensor, dtype)

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
                        return _stored_noun(kernel, name)
        return "intermediate"

    def _place(self, name: str) -> None:
        """Writes the allocation of a buffer when it is first needed."""
        if name not in self.waiting:
            return
        tensor, dtype = self.waiting.pop(name)
        assert tensor.sizes is not None and tensor.strides is not None
        like = next((i for i in self.task.inputs if self._same_form(i, tensor, dtype)), None)
        if like is not None:
            self.steps.append(f"{tensor.name} = torch.empty_like({like.path})")
            self.read_inputs.add(like.path)
            return
        device = f"device={self._device()}, dtype={dtype}"
        if self._equal(tensor.strides, _contiguous(tensor.sizes), tensor.sizes):
            self.steps.append(f"{tensor.name} = torch.empty({_tuple(tensor.sizes)}, {device})")
        else:
            self.steps.append(
                f"{tensor.name} = torch.empty_strided({_tuple(tensor.sizes)}, {_tuple(tensor.strides)}, {device})"
            )

    def _same_form(self, source: TensorInput, tensor: _Tensor, dtype: str) -> bool:
        sizes = tuple(self._size(expression(str(s))) for s in source.sizes)
        if source.is_attribute or tensor.sizes is None or tensor.strides is None or len(sizes) != len(tensor.sizes):
            return False
        index = len(self.task.size_names) + self.task.inputs.index(source)
        return (
            str(self.task.arguments[index].dtype) == dtype
            and self._equal(sizes, tensor.sizes)
            and self._equal(tensor.strides, _contiguous(sizes), sizes)
        )

    def _device(self) -> str:
        path = next((i.path for i in self.task.inputs), None)
        if path is None:
            raise NotReadable("The task has neither an input nor a parameter that says where to compute.")
        return f"{path}.device"

    def _equal(self, left: Sequence[str], right: Sequence[str], sizes: Sequence[str] | None = None) -> bool:
        """Whether two lists of sizes are equal for both sets of values; strides of dimensions of one do not count."""
        if len(left) != len(right):
            return False
        for environment in self.environments:
            for position, (a, b) in enumerate(zip(left, right, strict=True)):
                if sizes is not None and _value(sizes[position], environment) == 1:
                    continue
                if _value(a, environment) != _value(b, environment):
                    return False
        return True

    def _alias(self, target: str, source: str) -> None:
        if source in self.waiting:
            self.waiting[target] = self.waiting.pop(source)
        self.tensors[target] = self.tensors[source]

    def _assign(self, target: str, text: str, form: _Tensor | None) -> None:
        name = self.names.get(target) or self._free(self._intermediate_of(text))
        self.names[target] = name
        self.tensors[target] = _Tensor(name, form.sizes if form else None, form.strides if form else None)
        self.steps.append(f"{name} = {text}")

    @staticmethod
    def _intermediate_of(text: str) -> str:
        if "conv" in text:
            return "convolved"
        return "product" if re.search(r"torch\.(mm|addmm|bmm|baddbmm)\(", text) else "intermediate"

    def _view_of(self, node: ast.expr) -> _Tensor | None:
        if not isinstance(node, ast.Call):
            return None
        sizes = tuple(self._size(e) for e in _elements(node.args[1]))
        return _Tensor("", sizes, tuple(self._size(e) for e in _elements(node.args[2])))

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
            return self._size(node)
        raise NotReadable(f"The lowered call passes a value that is not known: {ast.unparse(node)[:80]}.")

    def _view(self, node: ast.Call) -> str:
        base = self._tensor_expression(node.args[0])
        source = self.tensors[node.args[0].id] if isinstance(node.args[0], ast.Name) else None
        form = self._view_of(node)
        assert form is not None and form.sizes is not None and form.strides is not None
        offset = self._size(node.args[3]) if len(node.args) > 3 else "0"
        if source and source.sizes and source.strides and offset == "0":
            if self._equal(form.sizes, source.sizes) and self._equal(form.strides, source.strides, form.sizes):
                return base
            if len(form.sizes) == 2 and len(source.sizes) == 2:
                turned = self._equal(form.sizes, source.sizes[::-1]) and self._equal(
                    form.strides, source.strides[::-1], form.sizes
                )
                if turned:
                    return f"{base}.t()"
            packed = self._equal(source.strides, _contiguous(source.sizes), source.sizes)
            if (
                packed
                and self._equal(form.strides, _contiguous(form.sizes), form.sizes)
                and self._same_count(form, source)
            ):
                return f"{base}.view({', '.join(form.sizes)})"
        return f"{base}.as_strided({_tuple(form.sizes)}, {_tuple(form.strides)}, {offset})"

    def _same_count(self, form: _Tensor, source: _Tensor) -> bool:
        left, right = " * ".join(f"({s})" for s in form.sizes or ()), " * ".join(f"({s})" for s in source.sizes or ())
        return self._equal([left or "1"], [right or "1"])

    def _library_call(self, node: ast.Call, out: str | None) -> str:
        function = called(node)
        name = function.removeprefix("extern_kernels.")
        arguments = [self._argument(a) for a in node.args]
        named = {k.arg: self._argument(k.value) for k in node.keywords if k.arg and k.arg != "out"}
        if name == "convolution":
            return _convolution(arguments, named)
        if function.startswith(("aten.", "torch.ops.aten.")) and not _runs_on_cpu(function):
            raise NotReadable(f"The lowered call needs {name}, which only a CUDA build of PyTorch has.")
        if "seed" in function or "rand" in function or "bernoulli" in function:
            raise NotReadable("The task draws random numbers while it computes.")
        if function.startswith("extern_kernels."):
            name = f"torch.{name}"
        if named.get("alpha") == "1":
            del named["alpha"]
        if named.get("beta") == "1":
            del named["beta"]
        if out:
            named["out"] = out
        return f"{name}({', '.join([*arguments, *(f'{k}={v}' for k, v in named.items())])})"

    def _argument(self, node: ast.expr) -> str:
        if (isinstance(node, ast.Name) and node.id in self.tensors) or called(node):
            return self._tensor_expression(node)
        if isinstance(node, ast.List | ast.Tuple):
            parts = ", ".join(self._argument(e) for e in node.elts)
            return f"[{parts}]" if isinstance(node, ast.List) else f"({parts}{',' if len(node.elts) == 1 else ''})"
        return self._size(node)

    def _launch(self, kernel: str, arguments: list[ast.expr]) -> None:
        if kernel not in self.wrapper.kernels:
            raise NotReadable(f"The lowered call launches {kernel}, whose text is not there.")
        placed: list[ast.expr] = []
        for parameter, argument in zip(self.wrapper.kernels[kernel].function.args.args, arguments, strict=False):
            if "ptr" in parameter.arg:
                placed.append(ast.Constant(self._tensor_expression(argument)))
            else:
                placed.append(expression(self._size(argument)))
        self.launches.append((kernel, placed))
        self.steps.append((kernel, len(self.launches) - 1))  # type: ignore[arg-type]

    def _rewrite_kernels(self) -> tuple[dict[str, PlainKernel], dict[str, WrittenKernel]]:
        kernels: dict[str, PlainKernel] = {}
        written: dict[str, WrittenKernel] = {}
        self.of_written: dict[str, tuple[str, list[str]]] = {}
        taken: set[str] = set()
        for name, kernel in self.wrapper.kernels.items():
            calls = [arguments for launched, arguments in self.launches if launched == name]
            if not calls:
                continue
            readable = _kernel_name(kernel, self.label, taken)
            taken.add(readable)
            parameters = [p.arg for p in kernel.function.args.args if not p.arg.endswith("BLOCK")]
            pointers, sizes = self._parameter_names(parameters, calls, kernel)
            many = self._many_rows(parameters, calls)
            kernels[readable] = rewrite_kernel(kernel, readable, pointers, sizes, many)
            self.many_rows |= {readable} if many else set()
            written[readable] = kernel
            order: dict[str | int, str] = {}
            for parameter in parameters:
                label = f"{pointers[parameter]}_ptr" if parameter in pointers else sizes[parameter]
                order.setdefault(label, parameter)
            wanted = [p for p in kernels[readable].parameters if not p.startswith("BLOCK")]
            self.of_written[name] = (readable, [order[label] for label in wanted])
        return kernels, written

    def _many_rows(self, parameters: Sequence[str], calls: list[list[ast.expr]]) -> bool:
        if "ynumel" not in parameters:
            return False
        extents = [_text(call[parameters.index("ynumel")]) for call in calls]
        return any(_value(extent, environment) > GRID_LIMIT for extent in extents for environment in self.environments)

    def _parameter_names(
        self, parameters: Sequence[str], calls: list[list[ast.expr]], kernel: WrittenKernel
    ) -> tuple[dict[str, str], dict[str, str | int]]:
        pointers: dict[str, str] = {}
        sizes: dict[str, str | int] = {}
        used: dict[str, str] = {}
        for position, parameter in enumerate(parameters):
            texts = [_text(call[position]) for call in calls]
            key = "|".join(texts)
            if "ptr" in parameter:
                wish = texts[0].rpartition(".")[2] if texts[0].isidentifier() or "self." in texts[0] else "value"
                if re.search(r"[^\w]", wish):
                    wish = "value"
                pointers[parameter] = _unique(wish, used, f"pointer {key}" if len(calls) == 1 else parameter)
                continue
            if all(re.fullmatch(r"\d+", t) for t in texts) and len(set(texts)) == 1:
                sizes[parameter] = int(texts[0])
                continue
            single = texts[0] if len(set(texts)) == 1 and texts[0].isidentifier() else None
            role = {"xnumel": "elements" if kernel.heuristic == "pointwise" else "row_count"}.get(parameter, "extent")
            role = "row_length" if parameter.startswith("r") else role
            sizes[parameter] = _unique(single or role, used, f"size {key}")
        return pointers, sizes

    def _finish(self, step: Any, kernels: Mapping[str, PlainKernel]) -> Launch:
        name, index = step
        readable, order = self.of_written[name]
        parameters = [p.arg for p in self.wrapper.kernels[name].function.args.args]
        given = dict(zip(parameters, (_text(a) for a in self.launches[index][1]), strict=False))
        extents = {axis: given.get(f"{axis}numel", "1") for axis in ("x", "y", "z", "r0_", "r1_")}
        return Launch(readable, tuple(given[parameter] for parameter in order), extents, readable in self.many_rows)

    def _return(self, statement: ast.Return) -> str:
        assert isinstance(statement.value, ast.Tuple)
        values = ["None" if ast.unparse(e) == "None" else self._tensor_expression(e) for e in statement.value.elts]
        from torch.utils import _pytree as pytree

        count = self.task.output_structure[0].num_leaves
        return _nested(pytree.tree_unflatten(values[-count:], self.task.output_structure[0]))

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
            forms = [self._size(expression(str(s))) for s in source.sizes]
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
                form = self._size(expression(str(size)))
                if match := re.fullmatch(rf"(\d+) \* {name}", form):
                    return f"{name} = {source.path}.shape[{index}] // {match.group(1)}"
        raise NotReadable(f"The size {name} cannot be read from the shape of an input or a parameter.")


def _value(text: str, environment: Mapping[str, Any]) -> int:
    return int(eval(text, {"__builtins__": {"max": max, "min": min}}, dict(environment)))


def _elements(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, ast.Tuple | ast.List) else [node]


def _contiguous(sizes: Sequence[str]) -> tuple[str, ...]:
    return tuple(" * ".join(f"({s})" for s in sizes[i + 1 :]) or "1" for i in range(len(sizes)))


def _tuple(parts: Sequence[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ast.unparse(node)


def _tidy(text: str) -> str:
    return ast.unparse(expression(text)) if text else text


def _unique(wish: str, used: dict[str, str], key: str) -> str:
    name, number = wish, 2
    while used.get(name, key) != key:
        name, number = f"{wish}_{number}", number + 1
    used[name] = key
    return name


def _nested(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return (
            f"({', '.join(map(_nested, value))}{',' if len(value) == 1 else ''})"
            if len(value) != 2
            else ", ".join(map(_nested, value))
        )
    if isinstance(value, list):
        return f"[{', '.join(map(_nested, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_nested(item)}" for key, item in value.items()) + "}"
    raise NotReadable(f"The reference returns a {type(value).__name__}, which is not written here.")


def _convolution(arguments: list[str], named: dict[str, str]) -> str:
    dimensions = len(_elements(expression(named["stride"])))
    parts = [*arguments, f"bias={named['bias']}", *(f"{k}={named[k]}" for k in ("stride", "padding"))]
    if named.get("transposed") == "True":
        parts += [
            f"output_padding={named['output_padding']}",
            f"groups={named['groups']}",
            f"dilation={named['dilation']}",
        ]
        return f"nn.functional.conv_transpose{dimensions}d({', '.join(parts)})"
    return (
        f"nn.functional.conv{dimensions}d({', '.join(parts)}, dilation={named['dilation']}, groups={named['groups']})"
    )


def _runs_on_cpu(function: str) -> bool:
    """Whether a library routine exists on a machine without a GPU, where candidates must run as well."""
    import torch

    operation = function.rpartition("aten.")[2].removesuffix(".default")
    keys = ("CPU", "CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
    name = f"aten::{operation}"
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in keys)


def _stored_noun(kernel: WrittenKernel, pointer: str) -> str:
    """What a kernel stores through a pointer, as a noun for the buffer."""
    assigned: dict[str, str] = {}
    for node in ast.walk(kernel.function):
        if isinstance(node, ast.Assign):
            assigned[ast.unparse(node.targets[0])] = ast.unparse(node.value)
    for node in ast.walk(kernel.function):
        if isinstance(node, ast.Call) and called(node) == "tl.store" and pointer in names_in(node.args[0]):
            text = assigned.get(ast.unparse(node.args[1]), "")
            for sign, noun in (
                ("max2", "largest"),
                ("min2", "smallest"),
                ("tl.sum", "total"),
                ("rsqrt", "inverse_root"),
            ):
                if sign in text:
                    return noun
            if re.fullmatch(r"tmp\d+\[:, None\]", text):
                return "statistic"
    return "intermediate"


_SILENT = re.compile(
    r"^(view|t|transpose|permute|expand|clone|unsqueeze|squeeze|_unsafe_view|prepare_softmax_online|split|detach)$"
)


def plain_operations(kernel: WrittenKernel) -> list[str]:
    """The operations that a kernel fuses, in the words of PyTorch, without those that only change a view."""
    names = [re.sub(r"^native_", "", name.strip("_")) for name in kernel.operations if not _SILENT.match(name)]
    if any(name == "prepare_softmax_online" for name in kernel.operations) and not names:
        names = ["softmax_statistics"]
    return list(dict.fromkeys(re.sub(r"_(with_indices|forward|legit_functional)$", "", name) for name in names))


def _kernel_name(kernel: WrittenKernel, label: str, taken: set[str]) -> str:
    names = plain_operations(kernel)
    base = "_".join(names[-3:]) if names else label
    return _unique(f"{base}_kernel" if len(base) < 40 else f"{label}_kernel", dict.fromkeys(taken, "taken"), "new")
