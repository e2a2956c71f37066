"""Everything that depends on the insides of Triton's interpreter (tried with 3.6 and 3.7).

Replaces how a launch is run: constants and signature are bound as the compiler would, the language is
patched once and not for every call, loops can be cut short, and memory operations can be counted
instead of performed. What is done with a launch is decided by the `Handler` that is active.
"""

from __future__ import annotations

import ast
import linecache
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import triton
import triton.language as tl
from triton.runtime import interpreter

from engine.judging.workers import interpreter_math
from engine.judging.workers.bounds import Bounds, RaceFound, within
from engine.judging.workers.interpreter_builder import Watch, install_builder
from engine.judging.workers.specialise import LaunchError, Specialiser
from engine.judging.workers.traffic import EndOfProgram

GRID_LIMITS = (2**31 - 1, 65535, 65535)
"""The most programs along each axis (CUDA C++ Programming Guide, technical specifications)."""

Grid = tuple[int, int, int]


class KernelError(RuntimeError):
    """A kernel failed while it was interpreted: which, at which line, and why."""


class OutOfPatience(RuntimeError):
    """A loop does not end where programs run one after the other."""


class Handler(Protocol):
    """Decides what becomes of a launch."""

    def launch(self, kernel: Kernel, bound: Mapping[str, Any], specialization: dict[str, Any], grid: Grid) -> None:
        """Runs the launch, or some of its programs, and remembers it."""
        ...


class _State:
    """The active handler; one launch runs at a time."""

    handler: Handler | None = None
    capability: int = 90
    patched: int = 0
    waits: int = 0


class Kernel:
    """One interpreted kernel: its function, name, place in the source and how its arguments are bound."""

    def __init__(self, function: Any) -> None:
        self.function = function.fn
        self.name: str = function.fn.__name__
        self.qualname: str = function.fn.__qualname__
        self.module: str = function.fn.__module__
        self.line: int = function.fn.__code__.co_firstlineno
        self._interpreted = function
        self.specialiser = Specialiser(function.fn, function.kwargs, _State.capability)
        self.constants = [parameter.name for parameter in self.specialiser.parameters if parameter.is_constexpr]
        # An address made from a number may point into memory that is no argument.
        self._bounded = "pointer_type" not in "".join(linecache.getlines(function.fn.__code__.co_filename))

    def arguments(self, bound: Mapping[str, Any], address: Callable[[Any], int]) -> dict[str, Any]:
        """Arguments as the interpreter wants them; `address` gives a tensor's."""
        return {
            name: value if name in self.constants else _convert(value, address)
            for name, value in bound.items()
            if name in self.specialiser.names
        }

    def perform(
        self,
        bound: Mapping[str, Any],
        grid: Grid,
        programs: Sequence[Grid] | None = None,
        tracking: bool = False,
    ) -> None:
        """Runs the programs on the tensors themselves, none of them beyond the memory of its tensors.

        With `tracking`, none of them on the results of another either, unless there are atomics.

        Raises:
            KernelError: with the kernel's name, and the line where a program fails.
        """
        bounds = Bounds(tracking)
        arguments = self.arguments(bound, bounds.address_of)
        with within(bounds if self._bounded else None):
            self.run(arguments, grid, programs)
        try:
            bounds.finish()
        except RaceFound as error:
            raise KernelError(_describe(self, error)) from error

    def run(self, arguments: Mapping[str, Any], grid: Grid, programs: Sequence[Grid] | None = None) -> None:
        """Runs all programs of the grid, or those named.

        Raises:
            KernelError: with the kernel's name and line when a program fails.
        """
        builder = interpreter.interpreter_builder
        body = self._interpreted.rewrite()
        builder.set_grid_dim(*grid)
        places = programs if programs is not None else all_programs(grid)
        with patched_language(), np.errstate(all="ignore"):
            for place in places:
                builder.set_grid_idx(*place)
                if Bounds.active is not None:
                    Bounds.active.program += 1
                try:
                    body(**arguments)
                except (EndOfProgram, MemoryError):
                    raise
                except Exception as error:
                    raise KernelError(_describe(self, error)) from error


def _describe(kernel: Kernel, error: Exception) -> str:
    file = kernel.function.__code__.co_filename
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    where = f" at line {lines[-1]}" if lines else ""
    reason = str(error).strip().splitlines()
    return f"kernel {kernel.name} failed{where}: {type(error).__name__}: {reason[0] if reason else 'no message'}"


def all_programs(grid: Grid) -> Iterator[Grid]:
    """Every program of a grid, in the order in which one core would take them."""
    for z in range(grid[2]):
        for y in range(grid[1]):
            for x in range(grid[0]):
                yield x, y, z


def _convert(value: Any, address: Callable[[Any], int]) -> Any:
    """One argument as an interpreter value; pointers come from `address` and not from the tensor itself."""
    if isinstance(value, triton.tools.tensor_descriptor.TensorDescriptor):
        strides = [*(_convert(stride, address) for stride in value.strides[:-1]), tl.constexpr(1)]
        return interpreter.interpreter_semantic.make_tensor_descriptor(
            base=_convert(value.base, address),
            shape=[_convert(size, address) for size in value.shape],
            strides=strides,
            block_shape=[tl.constexpr(size) for size in value.block_shape],
            padding_option=value.padding,
        )
    if isinstance(value, tuple):
        parts = [_convert(part, address) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if hasattr(value, "data_ptr"):
        kind = tl.str_to_ty(triton.runtime.jit.mangle_type(value), None)
        handle = interpreter.TensorHandle(np.array([address(value)], dtype=np.uint64), kind)
        return tl.tensor(handle, kind)
    if isinstance(value, bool):
        return interpreter._implicit_cvt(int(value))
    return interpreter._implicit_cvt(value)


# The language is patched as a whole, once; afterwards it is switched by plain assignments.

_changes: list[tuple[Any, str, Any, Any]] = []


def _language_changes() -> list[tuple[Any, str, Any, Any]]:
    if not _changes:

        def nothing() -> None:
            """Carries both language modules in its globals, which is where Triton looks for them."""

        carrier = types.FunctionType(nothing.__code__, {"tl": tl, "core": tl.core})
        scope = interpreter._patch_lang(carrier)
        first: dict[tuple[int, str], tuple[Any, str, Any, Any]] = {}
        for target, name, original in scope._changes:
            first.setdefault((id(target), name), (target, name, original, getattr(target, name)))
        scope.restore()
        # Scalars are arrays with one element, which numpy 2.5 no longer takes for an index.
        index = first[id(tl.tensor), "__index__"]
        first[id(tl.tensor), "__index__"] = (*index[:3], lambda self: int(self.handle.data.item()))
        _changes.extend(first.values())
    return _changes


@contextmanager
def patched_language() -> Iterator[None]:
    """While active, `triton.language` means the interpreter; may be nested."""
    changes = _language_changes()
    if _State.patched == 0:
        for target, name, _, new in changes:
            setattr(target, name, new)
    _State.patched += 1
    try:
        yield
    finally:
        _State.patched -= 1
        if _State.patched == 0:
            for target, name, original, _ in changes:
                if original is interpreter._MISSING:
                    delattr(target, name)
                else:
                    setattr(target, name, original)


@contextmanager
def handling(handler: Handler) -> Iterator[None]:
    """While active, launches go to the handler."""
    before = _State.handler
    _State.handler = handler
    try:
        yield
    finally:
        _State.handler = before


@contextmanager
def impatient(turns: int) -> Iterator[None]:
    """While active, kernels may make so many turns of `while` loops before OutOfPatience ends them."""
    _State.waits = turns + 1
    try:
        yield
    finally:
        _State.waits = 0


# Launches.

_kernels: dict[int, Kernel] = {}


def _run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
    """Replaces InterpretedFunction.run."""
    if warmup:
        return
    kernel = _kernels.get(id(self))
    if kernel is None:
        kernel = _kernels[id(self)] = Kernel(self)
    for hook in self.pre_run_hooks:
        hook(*args, **kwargs)
    bound, specialization = kernel.specialiser.bind(args, kwargs)
    extents = grid(bound) if callable(grid) else grid
    shape = _grid_shape(kernel, extents)
    if 0 in shape:
        return
    if _State.handler is not None:
        _State.handler.launch(kernel, bound, specialization, shape)
    else:
        kernel.perform(bound, shape)


def _grid_shape(kernel: Kernel, extents: Any) -> Grid:
    if not isinstance(extents, tuple | list) or not 1 <= len(extents) <= 3:
        raise LaunchError(f"the grid of kernel {kernel.name} must be a tuple of one to three numbers, not {extents!r}")
    sizes = [int(extent) for extent in extents]
    for axis, size in enumerate(sizes):
        if not 0 <= size <= GRID_LIMITS[axis]:
            limit = f"{GRID_LIMITS[axis]:,}"
            raise LaunchError(
                f"kernel {kernel.name} is launched with {size:,} programs along axis {axis}, the limit is {limit}"
            )
    sizes += [1] * (3 - len(sizes))
    return sizes[0], sizes[1], sizes[2]


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Replaces InterpretedFunction.__call__: a device function called by a kernel."""
    if _State.patched:
        return self.rewrite()(*args, **kwargs)
    with patched_language():
        return self.rewrite()(*args, **kwargs)


def _autotuner_run(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Replaces Autotuner.run: the first configuration that pruning leaves is taken, nothing is timed."""
    self.nargs = dict(zip(self.arg_names, args, strict=False))
    configs = self.configs
    if len(configs) > 1 and self.early_config_prune is not None:
        configs = list(self.early_config_prune(self.configs, self.nargs, **kwargs)) or self.configs
    config = self.best_config = configs[0]
    full = {**self.nargs, **kwargs, **config.all_kwargs()}
    clash = kwargs.keys() & config.kwargs.keys()
    if clash:
        raise LaunchError(f"the autotuned argument {sorted(clash)[0]!r} is also given at the launch")
    if config.pre_hook is not None:
        config.pre_hook(full)
    self.pre_hook(full, reset_only=True)
    result = self.fn.run(*args, **kwargs, **config.all_kwargs())
    self.nargs = None
    return result


# Loops. The names below are called by rewritten kernels.


def _observed_loop(steps: Any, unrolled: bool) -> Any:
    if Watch.observer is None or not isinstance(steps, range):
        return steps
    return Watch.observer.loop(steps, unrolled)


def _wait() -> bool:
    _State.waits -= 1
    if _State.waits == 0:
        raise OutOfPatience("a program waits for another one that runs later")
    return True


def _observed_while() -> bool:
    if Watch.observer is None:
        return not _State.waits or _wait()
    return Watch.observer.may_continue(sys._getframe(1).f_lineno)


def _reduced(original: Callable[..., Any]) -> Callable[..., Any]:
    """Reductions and scans: one barrier, and an operation for each element."""

    def apply(self: Any, data: Any) -> Any:
        observer = Watch.observer
        if observer is not None:
            parts = data if isinstance(data, tuple) else (data,)
            observer.barrier()
            observer.count("reduce", sum(part.handle.data.size for part in parts))
        return original(self, data)

    return apply


def install(capability: int) -> None:
    """Patches the interpreter for the life of this process; a second call changes only the architecture.

    Raises:
        RuntimeError: where Triton was imported without TRITON_INTERPRET=1.
    """
    _State.capability = capability
    _kernels.clear()
    if hasattr(interpreter, "observed_loop"):
        return
    if not triton.knobs.runtime.interpret:
        raise RuntimeError("set TRITON_INTERPRET=1 before importing triton: kernels would not be interpreted")
    interpreter.observed_loop = _observed_loop
    interpreter.observed_while = _observed_while
    interpreter.InterpretedFunction.run = _run
    interpreter.InterpretedFunction.__call__ = _call
    triton.runtime.Autotuner.run = _autotuner_run
    _install_rewriter()
    install_builder()
    interpreter_math.install()
    for kind in (interpreter.ReduceOps, interpreter.ScanOps):
        kind.apply = _reduced(kind.apply)


def _install_rewriter() -> None:
    class LoopTransformer(interpreter.ASTTransformer):  # type: ignore[misc]
        """Hands every loop of a kernel to the observer."""

        def visit_For(self, node: ast.For) -> ast.AST:
            self.generic_visit(node)
            unrolled = isinstance(node.iter, ast.Call) and ast.unparse(node.iter.func).endswith("static_range")
            node.iter = ast.Call(
                func=ast.Name(id="observed_loop", ctx=ast.Load()),
                args=[node.iter, ast.Constant(value=unrolled)],
                keywords=[],
            )
            return node

        def visit_While(self, node: ast.While) -> ast.AST:
            self.generic_visit(node)
            check = ast.Call(func=ast.Name(id="observed_while", ctx=ast.Load()), args=[], keywords=[])
            node.test = ast.BoolOp(op=ast.And(), values=[node.test, check])
            return node

    interpreter.FunctionRewriter.ast_transformer = LoopTransformer()
