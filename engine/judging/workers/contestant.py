"""The untrusted process: imports one candidate, answers the judge's questions about it, and dies.

It is forked from the nursery with torch and triton loaded. Everything here shares an interpreter
with the candidate, so nothing it says is believed: the judge checks all that can be checked from
outside, and holds every expected value where this process cannot reach.
"""

from __future__ import annotations

import importlib.util
import socket
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from engine.judging.wire import Channel, Message, WireClosed
from engine.judging.workers import faults, launches
from engine.judging.workers.exchange import map_arena
from engine.judging.workers.values import UnsupportedValue, dtype_name, flatten, unflatten


class CandidateProblem(Exception):
    """The candidate is not what the task asks for; `kind` is the verdict."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(slots=True)
class _Candidate:
    """What has been made of the candidate so far."""

    path: str
    device: str
    factory: Any = None
    model: Any = None
    inputs: list[torch.Tensor] = field(default_factory=list)
    input_form: Any = None
    outputs: list[torch.Tensor] = field(default_factory=list)
    answer: list[torch.Tensor] = field(default_factory=list)


def serve(connection: socket.socket, path: str, device: str) -> None:
    """Answers the judge until it hangs up.

    Args:
        connection: this contestant's own socket to the judge.
        path: the file that holds the candidate's source.
        device: `cpu` or `cuda:0`.
    """
    channel = Channel(connection)
    candidate = _Candidate(path, device)
    if device == "cpu":
        from engine.judging.workers import emulation

        emulation.enter()
    else:
        torch.cuda.set_device(torch.device(device))
    operations: dict[str, Callable[[_Candidate, Message, list[int]], dict[str, Any]]] = {
        "load": _load,
        "build": _build,
        "run": _run,
        "outputs": _outputs,
        "sample": _sample,
    }
    while True:
        try:
            message, descriptors = channel.receive(max_descriptors=8)
        except WireClosed:
            return
        try:
            with torch.no_grad():
                answer = {"ok": operations[message["op"]](candidate, message, descriptors)}
        except CandidateProblem as problem:
            answer = {"failed": {"kind": problem.kind, "message": faults.one_line(problem), "detail": ""}}
        except BaseException as error:
            answer = {"failed": faults.fault_of(error, path)}
        sys.stdout.flush()
        sys.stderr.flush()
        channel.send(answer)


def _load(candidate: _Candidate, message: Message, descriptors: list[int]) -> dict[str, Any]:
    with open(candidate.path, "rb") as file:
        compile(file.read(), candidate.path, "exec")
    spec = importlib.util.spec_from_file_location("candidate", candidate.path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Triton and dataclasses look the module up by name while it runs.
    sys.modules["candidate"] = module
    spec.loader.exec_module(module)
    factory = getattr(module, "ModelNew", None)
    if factory is None:
        raise CandidateProblem("compile_error", "the candidate defines no class ModelNew")
    if not (isinstance(factory, type) and issubclass(factory, torch.nn.Module)):
        raise CandidateProblem("compile_error", "the candidate's ModelNew is no subclass of torch.nn.Module")
    candidate.factory = factory
    return {}


def _on_device(candidate: _Candidate) -> AbstractContextManager[Any]:
    return nullcontext() if candidate.device == "cpu" else torch.device(candidate.device)


def _build(candidate: _Candidate, message: Message, descriptors: list[int]) -> dict[str, Any]:
    """Constructs the model and gives it the reference's weights where names and shapes agree."""
    inputs, state, constants = (map_arena(handle, fds) for handle, fds in _with_descriptors(message, descriptors))
    candidate.inputs = inputs
    candidate.input_form = message["input_form"]
    arguments = unflatten(message["init"], constants)
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
    if message["dtype"]:
        model = model.to(getattr(torch, message["dtype"]))
    candidate.model = model.to(candidate.device) if candidate.device != "cpu" else model
    return {"unmatched": _copy_state(candidate.model, dict(zip(message["names"], state, strict=True)))}


def _with_descriptors(message: Message, descriptors: list[int]) -> list[tuple[dict[str, Any], list[int]]]:
    """The arenas of a message, each with its share of the descriptors, in the order of both."""
    rest = list(descriptors)
    pairs = []
    for handle in message["arenas"]:
        count = 1 if handle["kind"] == "memfd" else 0
        pairs.append((handle, rest[:count]))
        rest = rest[count:]
    return pairs


def _copy_state(model: torch.nn.Module, state: dict[str, torch.Tensor]) -> list[str]:
    """Copies weights by name and shape; returns the reference's names that found no counterpart."""
    mine = dict(model.named_parameters()) | dict(model.named_buffers())
    unmatched = []
    for name, value in state.items():
        target = mine.get(name)
        if target is not None and target.shape == value.shape:
            target.data.copy_(value)
        else:
            unmatched.append(name)
    return unmatched


def _call(candidate: _Candidate) -> tuple[Any, list[torch.Tensor]]:
    result = candidate.model(*unflatten(candidate.input_form, candidate.inputs))
    tensors: list[torch.Tensor] = []
    try:
        form = flatten(result, tensors)
    except UnsupportedValue as error:
        raise CandidateProblem("incorrect", f"the candidate returns {error}") from error
    if candidate.device != "cpu":
        torch.cuda.synchronize()
    return form, tensors


def _run(candidate: _Candidate, message: Message, descriptors: list[int]) -> dict[str, Any]:
    """Calls the candidate once on what the input arena holds now."""
    recorded: list[dict[str, Any]] = []
    if message["reload"]:
        for handle, fds in _with_descriptors(message, descriptors):
            _copy_state(candidate.model, dict(zip(message["names"], map_arena(handle, fds), strict=True)))
    if message["record"]:
        with launches.recording(candidate.device) as launched:
            form, tensors = _call(candidate)
        recorded = launched()
    else:
        form, tensors = _call(candidate)
    candidate.outputs = tensors
    if candidate.answer and _fits(tensors, candidate.answer):
        _hand_over(candidate)
    described = [[list(tensor.shape), dtype_name(tensor.dtype), tensor.device.type] for tensor in tensors]
    return {"form": form, "tensors": described, "launches": recorded}


def _fits(tensors: list[torch.Tensor], slots: list[torch.Tensor]) -> bool:
    return len(tensors) == len(slots) and all(
        tensor.shape == slot.shape and tensor.dtype == slot.dtype for tensor, slot in zip(tensors, slots, strict=True)
    )


def _hand_over(candidate: _Candidate) -> None:
    for tensor, slot in zip(candidate.outputs, candidate.answer, strict=True):
        slot.copy_(tensor)
    if candidate.device != "cpu":
        torch.cuda.synchronize()


def _outputs(candidate: _Candidate, message: Message, descriptors: list[int]) -> dict[str, Any]:
    """Maps the arena for outputs and copies the last call's into it; later calls do so themselves."""
    ((handle, fds),) = _with_descriptors(message, descriptors)
    candidate.answer = map_arena(handle, fds)
    if not _fits(candidate.outputs, candidate.answer):
        raise CandidateProblem("incorrect", "the candidate's outputs change shape or dtype from call to call")
    _hand_over(candidate)
    return {}


def _sample(candidate: _Candidate, message: Message, descriptors: list[int]) -> dict[str, Any]:
    """Runs the candidate at the large form without memory and returns what its launches would move."""
    return launches.sample(candidate.factory, message["large"])
