"""The process that answers the judge's questions about one module, and dies.

Mostly a contestant: untrusted, one candidate, forked from the nursery with torch and triton loaded.
Everything here shares an interpreter with the candidate, so nothing it says is believed: the judge
checks all that can be checked from outside, and holds every expected value where this process cannot
reach. The same questions are answered by baseline processes, in which the task's own Model runs.
"""

from __future__ import annotations

import importlib.util
import socket
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from engine.judging.wire import Channel, Message, WireClosed
from engine.judging.workers import autotuning, faults, launches, timing
from engine.judging.workers.conditions import Allocations, TooLong, at_most, spoil_free_memory
from engine.judging.workers.exchange import map_arena
from engine.judging.workers.guard import Guard
from engine.judging.workers.launches import Recorded
from engine.judging.workers.traits import traits_of
from engine.judging.workers.turns import Turns
from engine.judging.workers.values import UnsupportedValue, dtype_name, dtype_of, flatten, unflatten
from engine.judging.workers.weights import Home, find_homes
from engine.tasks.opening import load_module

_MOST_OF_THE_DEVICE = 0.8
"""The share of the GPU's memory that one process may take."""

_synchronize = torch.cuda.synchronize
_current_stream = torch.cuda.current_stream
_stream = torch.cuda.stream


class CandidateProblem(Exception):
    """The candidate is not what the task asks for; `kind` is the verdict."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


Tensors = list[torch.Tensor]


@dataclass(slots=True)
class _Candidate:
    """What has been made of the module so far."""

    path: str
    device: str
    stream: Any = None
    untrusted: bool = True
    factory: Any = None
    model: Any = None
    homes: dict[str, Home] = field(default_factory=dict)
    inputs: Tensors = field(default_factory=list)
    input_form: Any = None
    outputs: Tensors = field(default_factory=list)
    answer: Tensors = field(default_factory=list)
    former: Tensors = field(default_factory=list)
    timed: timing.Call | None = None
    timed_inputs: Tensors = field(default_factory=list)
    mutated: list[Tensors] = field(default_factory=list)
    changes: Tensors = field(default_factory=list)
    restoring: timing.Restoring | None = None
    flush: torch.Tensor | None = None


def serve(connection: socket.socket, path: str, device: str) -> None:
    """Answers the judge until it hangs up.

    Args:
        connection: this process's own socket to the judge.
        path: the file that holds the module's source.
        device: `cpu` or `cuda:0`.
    """
    channel = Channel(connection)
    candidate = _Candidate(path, device)
    turns = Turns(channel)
    if device == "cpu":
        from engine.judging.workers import emulation

        emulation.enter()
    else:
        turns.install()
        autotuning.take_turns(turns)
        torch.cuda.set_device(torch.device(device))
        # A part is left for the judge and for others; a candidate that lifts this runs out of memory all the same.
        torch.cuda.set_per_process_memory_fraction(_MOST_OF_THE_DEVICE)
        candidate.stream = _current_stream()
    guard = Guard()
    operations: dict[str, Callable[[_Candidate, Message, list[Tensors]], dict[str, Any]]] = {
        "load": _load,
        "build": _build,
        "run": _run,
        "outputs": _outputs,
        "former": _former,
        "resized": _resized,
        "tire": _tire,
        "sample": _sample,
        "prepare": _prepare,
        "time": _time,
    }
    while True:
        try:
            message, descriptors = channel.receive(max_descriptors=8)
        except WireClosed:
            return
        turns.answering(message["nonce"])
        try:
            arenas = _mapped(message, descriptors)
            with torch.no_grad():
                answer = {"ok": operations[message["op"]](candidate, message, arenas)}
            answer["ok"]["threads"] = guard.threads()
            replaced = guard.replaced() if candidate.untrusted else ""
            if replaced:
                raise CandidateProblem("tampered", f"the candidate replaces {replaced}")
        except CandidateProblem as problem:
            answer = {"failed": {"kind": problem.kind, "message": faults.one_line(problem), "detail": ""}}
        except BaseException as error:
            answer = {"failed": faults.fault_of(error, path)}
        turns.answering("")
        sys.stdout.flush()
        sys.stderr.flush()
        channel.send({**answer, "nonce": message["nonce"]})


def _mapped(message: Message, descriptors: list[int]) -> list[Tensors]:
    """The tensors of a message's arenas; descriptors belong to memfds, in their order."""
    rest = iter(descriptors)
    return [map_arena(handle, [next(rest)] if handle["kind"] == "memfd" else []) for handle in message["arenas"]]


def _load(candidate: _Candidate, message: Message, arenas: list[Tensors]) -> dict[str, Any]:
    """Imports the module and finds its entry; `overrides` replaces constants of a task's module.

    `entry` is None for a task, whose Model is run; else the name of what a candidate defines: a class, or where
    `function` is true a function.
    """
    entry = message["entry"]
    if entry is None:
        with open(candidate.path, encoding="utf-8") as file:
            task = load_module(file.read(), message["overrides"], "candidate")
        sys.modules["candidate"] = task
        candidate.untrusted = False
        candidate.factory = task.Model
        return {}
    with open(candidate.path, "rb") as source:
        compile(source.read(), candidate.path, "exec")
    spec = importlib.util.spec_from_file_location("candidate", candidate.path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Triton and dataclasses look the module up by name while it runs.
    sys.modules["candidate"] = module
    spec.loader.exec_module(module)
    factory = getattr(module, entry, None)
    kind = "function" if message["function"] else "class"
    if factory is None:
        raise CandidateProblem("compile_error", f"the candidate defines no {kind} {entry}")
    if message["function"]:
        if not callable(factory) or isinstance(factory, type):
            raise CandidateProblem("compile_error", f"the candidate's {entry} is no function")
        factory = _as_module(factory)
    if not (isinstance(factory, type) and issubclass(factory, torch.nn.Module)):
        raise CandidateProblem("compile_error", f"the candidate's {entry} is no subclass of torch.nn.Module")
    candidate.factory = factory
    return {}


def _as_module(function: Callable[..., Any]) -> type[torch.nn.Module]:
    """A module without weights whose forward method is the function."""

    class Function(torch.nn.Module):
        def forward(self, *arguments: Any) -> Any:
            return function(*arguments)

    return Function


def _on_device(candidate: _Candidate) -> AbstractContextManager[Any]:
    return nullcontext() if candidate.device == "cpu" else torch.device(candidate.device)


def _build(candidate: _Candidate, message: Message, arenas: list[Tensors]) -> dict[str, Any]:
    """Constructs the model and gives it the reference's weights where names and shapes agree."""
    inputs, state, constants = arenas
    candidate.inputs = inputs
    candidate.input_form = message["input_form"]
    candidate.outputs, candidate.answer, candidate.timed = [], [], None
    autotuning.freeze(message["tuned"])
    arguments = unflatten(message["init"], constants)
    _set_precision(message["tier"])
    torch.manual_seed(message["seed"])
    try:
        with _on_device(candidate):
            model = candidate.factory(*arguments)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            raise CandidateProblem(
                "runtime_error", f"ModelNew cannot be constructed with Model's arguments: {error}"
            ) from error
        raise
    if candidate.device != "cpu":
        model = model.to(candidate.device)
    if message["dtype"]:
        model = model.to(dtype_of(message["dtype"]))
    weights = dict(zip(message["names"], state, strict=True))
    candidate.homes = find_homes(model, weights)
    for name, home in candidate.homes.items():
        home.put(weights[name])
    candidate.model = _optimised(model, message["optimise"])
    return {"unmatched": [name for name in weights if name not in candidate.homes]}


def _set_precision(tier: str) -> None:
    """What float32 matrix products may be computed with; the same for a candidate and what it is compared with."""
    reduced = tier != "exact"
    torch.set_float32_matmul_precision("high" if reduced else "highest")
    torch.backends.cudnn.allow_tf32 = reduced


def _optimised(model: torch.nn.Module, how: str | None) -> Any:
    """The model as PyTorch's compiler makes it; None leaves it eager."""
    if how is None:
        return model
    torch._dynamo.reset()
    # Graphs would copy every input into their own memory, which makes the baseline slower for large ones.
    return torch.compile(model, mode="max-autotune-no-cudagraphs" if how == "compile_max" else None)


def _call(candidate: _Candidate, form: Any, inputs: Tensors) -> tuple[Any, Tensors]:
    """One call; on a GPU its work may still be under way."""
    form, tensors = _flattened(candidate.model(*unflatten(form, inputs)))
    if candidate.stream is not None and _current_stream() != candidate.stream:
        raise CandidateProblem("incorrect", "the candidate leaves another CUDA stream current than it was called on")
    return form, tensors


def _flattened(result: Any) -> tuple[Any, Tensors]:
    tensors: Tensors = []
    try:
        return flatten(result, tensors), tensors
    except UnsupportedValue as error:
        raise CandidateProblem("incorrect", f"the candidate returns {error}") from error


def _run(candidate: _Candidate, message: Message, arenas: list[Tensors]) -> dict[str, Any]:
    """Calls the candidate once on what the input arena holds now.

    `names` come with new weights. `conduct` says what becomes of the launches, which are recorded then;
    None leaves them alone. `filling` is what uninitialised memory holds, `training` the model's mode,
    `at_most_s` how long the call may take.
    """
    for state in arenas:
        for name, value in zip(message["names"], state, strict=True):
            if name in candidate.homes:
                candidate.homes[name].put(value)
    if isinstance(candidate.model, torch.nn.Module):
        candidate.model.train(message["training"])
    candidate.former = candidate.outputs if message["keep"] else []
    form, recorded = _checked(
        candidate, message["conduct"], message["filling"], message["at_most_s"], candidate.input_form, candidate.inputs
    )
    tensors = candidate.outputs
    return {
        "form": form,
        "tensors": _described(tensors),
        "traits": [trait.to_json() for trait in traits_of(tensors, candidate.inputs)],
        "launches": recorded.launches,
        "fingerprint": recorded.fingerprint,
        "replays": recorded.replays,
        "streams": recorded.streams,
    }


def _checked(
    candidate: _Candidate,
    conduct: str | None,
    filling: str | None,
    at_most_s: float | None,
    input_form: Any,
    inputs: Tensors,
    answer: Tensors | None = None,
) -> tuple[Any, Recorded]:
    """One call under the conditions named, whose outputs are kept, and handed over where there is room for them.

    They are copied on the stream that the call was made on, at once: work on another one that nobody waits
    for comes too late, as it would for whoever uses the candidate.
    """
    answer = candidate.answer if answer is None else answer
    gpu = candidate.stream is not None
    # Interpreted kernels are kept inside their tensors by `bounds`.
    allocations = Allocations(filling, margins=gpu) if filling is not None else None
    recorded = Recorded()
    if gpu:
        spoil_free_memory()
    with at_most(at_most_s):
        with ExitStack() as stack:
            if conduct is not None:
                recorded = stack.enter_context(launches.recording(candidate.device, conduct))
            if allocations is not None:
                stack.enter_context(allocations)
            form, candidate.outputs = _call(candidate, input_form, inputs)
        if answer and _fits(candidate.outputs, answer) and _plain(candidate.outputs):
            _hand_over(candidate, candidate.outputs, answer)
        elif gpu:
            _synchronize()
        if allocations is not None:
            allocations.check()
    return form, recorded


def _plain(tensors: Tensors) -> bool:
    """Whether copying the tensors runs none of the candidate's code."""
    return all(type(tensor) in (torch.Tensor, torch.nn.Parameter) for tensor in tensors)


def _described(tensors: Tensors) -> list[list[Any]]:
    return [[list(tensor.shape), dtype_name(tensor.dtype)] for tensor in tensors]


def _fits(tensors: Tensors, slots: Tensors) -> bool:
    return len(tensors) == len(slots) and all(
        tensor.shape == slot.shape and tensor.dtype == slot.dtype for tensor, slot in zip(tensors, slots, strict=True)
    )


def _hand_over(candidate: _Candidate, outputs: Tensors, answer: Tensors) -> None:
    _copy(candidate, outputs, answer)
    if candidate.stream is not None:
        _synchronize()


def _copy(candidate: _Candidate, outputs: Tensors, answer: Tensors) -> None:
    """Puts outputs, or changed inputs, where the judge reads them; on a GPU the copies may still be under way."""
    if not _fits(outputs, answer):
        raise CandidateProblem("incorrect", "the candidate's outputs change shape or dtype from call to call")
    with _stream(candidate.stream) if candidate.stream is not None else nullcontext():
        for tensor, slot in zip(outputs, answer, strict=True):
            slot.copy_(tensor)


def _outputs(candidate: _Candidate, message: Message, arenas: list[Tensors]) -> dict[str, Any]:
    """Copies the last call's outputs into the arena given; later calls do so themselves."""
    (candidate.answer,) = arenas
    _hand_over(candidate, candidate.outputs, candidate.answer)
    return {}


def _former(candidate: _Candidate, message: Message, arenas: list[Tensors]) -> dict[str, Any]:
    """Copies what the outputs of the call before the last one, which was kept, hold now."""
    _hand_over(candidate, candidate.former, candidate.answer)
    candidate.former = []
    return {}


def _resized(candidate: _Candidate, message: Message, arenas: list[Tensors]) -> dict[str, Any]:
    """Calls the candidate once on inputs of other sizes, and copies its outputs where there is room for them."""
    inputs, answer = arenas
    autotuning.settle()
    form, _ = _checked(candidate, "run", "nan", message["at_most_s"], message["input_form"], inputs, answer)
    return {"form": form, "tensors": _described(candidate.outputs)}


def _tire(candidate: _Candidate, message: Message, arenas: list[Tensors]) -> dict[str, Any]:
    """Makes many calls whose launches do nothing, then one as it should be, since state may come from the last one."""

    def call() -> None:
        with suppress(Exception, SystemExit):
            candidate.model(*unflatten(candidate.input_form, candidate.inputs))

    no_launches, limit_s = launches.recording(candidate.device, "skip"), message["at_most_s"]
    with suppress(TooLong), at_most(limit_s), no_launches, Allocations("harmless", margins=False):
        for _ in range(message["calls"]):
            call()
    with suppress(TooLong), at_most(limit_s):
        call()
    return {}


def _sample(candidate: _Candidate, message: Message, arenas: list[Tensors]) -> dict[str, Any]:
    """Runs the candidate at the large form without memory and returns what its launches would move."""
    return launches.sample(candidate.factory, message["large"], message["mutated"], message["corners"])


def _prepare(candidate: _Candidate, message: Message, arenas: list[Tensors]) -> dict[str, Any]:
    """Gets ready for timed blocks that take their inputs from several sets in turn.

    `mode` is `launch` or `graph`; `cache` is `cold` or `warm`; `mutated` names the inputs that each call changes, for
    which a second arena takes what a kept call left in them.
    """
    together, *rest = arenas
    # A captured graph knows addresses only; memory that nothing refers to would be unmapped.
    candidate.timed_inputs = together
    candidate.changes = rest[0] if rest else []
    sets = message["sets"]
    width = len(together) // sets
    each = [together[index * width : (index + 1) * width] for index in range(sets)]
    arguments = [unflatten(candidate.input_form, tensors) for tensors in each]
    candidate.mutated = [[tensors[index] for index in message["mutated"]] for tensors in each]
    candidate.restoring = timing.Restoring(candidate.mutated) if message["mutated"] else None
    model = candidate.model

    def call(index: int) -> Any:
        return model(*arguments[index % sets])

    candidate.timed = _captured(call, sets) if message["mode"] == "graph" else call
    candidate.flush = timing.flush_buffer(torch.device(candidate.device)) if message["cache"] == "cold" else None
    if candidate.restoring is not None:
        candidate.restoring.restore_all()
    return {"tuned": autotuning.chosen()}


def _captured(call: timing.Call, sets: int) -> timing.Call:
    try:
        return timing.captured(call, sets)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        words = f"its calls cannot be captured as a CUDA graph, which --time graph asks for: {why}"
        raise CandidateProblem("runtime_error", words) from error


def _time(candidate: _Candidate, message: Message, arenas: list[Tensors]) -> dict[str, Any]:
    """Runs one timed block; without `calls` only what surrounds them.

    `keep` is the call whose outputs, and what it left in the inputs that it changes, are handed over.
    """
    assert candidate.timed is not None
    call = candidate.timed if message["calls"] else None

    def take(result: Any, index: int) -> None:
        _, candidate.outputs = _flattened(result)
        _copy(candidate, candidate.outputs, candidate.answer)
        _copy(candidate, candidate.mutated[index % len(candidate.mutated)], candidate.changes)

    kept = timing.Kept(message["keep"], take) if message["keep"] is not None else None
    block = timing.run_block(call, message["iterations"], candidate.flush, candidate.restoring, kept)
    return {"times_us": block.times_us, "peak_bytes": block.peak_bytes}
