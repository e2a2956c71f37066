"""The task's own code, as the judge runs it: models, secret inputs, and what must come out.

A task is a module in the KernelBench format: `class Model`, `get_inputs()` and optionally
`get_init_inputs()`. Its large form is the module with a case's overrides; its small form, which the
interpreter can run, has the small overrides as well.
"""

from __future__ import annotations

import copy
import hashlib
import linecache
import threading
import types
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from engine.judging.workers.faults import one_line
from engine.judging.workers.numerics import Truth, noise
from engine.judging.workers.values import UnsupportedValue, flatten, unflatten

DRAWS = 5
"""Secret seeds that every candidate must answer for."""

_HALF_RANGE = 4.0


class TaskProblem(Exception):
    """The task cannot be judged; the message is one sentence about it."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One question: inputs and weights drawn in one way from one secret seed."""

    name: str
    draw: int
    change: str = ""
    weights: str = "initial"


TRIALS = (
    *(Trial(f"secret inputs {draw + 1}", draw) for draw in range(DRAWS)),
    Trial("inputs with random signs", DRAWS, "signed"),
    Trial("inputs 4 times as large", DRAWS + 1, "enlarged"),
    Trial("inputs 16 times as small", DRAWS + 2, "diminished"),
    Trial("changed weights", DRAWS + 3, weights="changed"),
)


@dataclass(frozen=True, slots=True)
class Question:
    """A trial made concrete: inputs as a flattened value, and the truth about them.

    `mutated` names the inputs that the reference itself changes; a candidate may do so too.
    """

    trial: Trial
    form: Any
    tensors: list[torch.Tensor]
    truth: Truth
    answer_form: Any
    noise: float
    mutated: frozenset[int]

    @property
    def bytes(self) -> int:
        """What keeping the question costs."""
        kept = [*self.tensors, *self.truth.own, *self.truth.exact]
        return sum(tensor.numel() * tensor.element_size() for tensor in kept)


def derived_seed(secret: int, *words: object) -> int:
    """A seed that tells nothing about the secret or about its siblings."""
    text = ":".join(map(str, (secret, *words)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")


def load_module(source: str, overrides: Mapping[str, Any], name: str) -> types.ModuleType:
    """Executes a task's source as a fresh module and replaces its constants.

    Raises TaskProblem when it cannot be executed or lacks what a task needs.
    """
    filename = f"<{name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    module = types.ModuleType(name)
    try:
        exec(compile(source, filename, "exec"), module.__dict__)
    except SyntaxError as error:
        raise TaskProblem(f"has a syntax error in line {error.lineno}: {one_line(error.msg)}") from error
    except Exception as error:
        raise TaskProblem(f"cannot be imported: {type(error).__name__}: {one_line(error)}") from error
    module.__dict__.update(overrides)
    model = getattr(module, "Model", None)
    if not (isinstance(model, type) and issubclass(model, torch.nn.Module)):
        raise TaskProblem("defines no class Model that is a torch.nn.Module")
    if not callable(getattr(module, "get_inputs", None)):
        raise TaskProblem("defines no function get_inputs")
    return module


class Reference:
    """One form of one case on one device. Safe to use from several threads."""

    def __init__(
        self,
        module: types.ModuleType,
        device: str,
        dtype: torch.dtype | None,
        secret: int,
        kept_bytes: int = 2 << 30,
    ) -> None:
        """Makes the reference model.

        Args:
            module: the task's module at the wanted form.
            device: `cpu` or `cuda:0`.
            dtype: what floating inputs and weights are cast to; None keeps the task's own.
            secret: what inputs and weights are drawn from.
            kept_bytes: questions that are kept for the next candidate; above this they are made again.

        Raises:
            TaskProblem: the task's code fails.
        """
        self._limit = kept_bytes
        self.device = torch.device(device)
        self.dtype = dtype
        self._module = module
        self._secret = secret
        # Seeds are global to a process, so only one question is drawn at a time.
        self._lock = threading.RLock()
        self._kept: dict[Trial, Question | None] = {}
        self._kept_bytes = 0
        self.weight_seed = derived_seed(secret, "weights")
        self.init_constants: list[torch.Tensor] = []
        init = self._calling("get_init_inputs", getattr(module, "get_init_inputs", list))
        try:
            self.init_form = flatten(list(init), self.init_constants)
        except UnsupportedValue as error:
            raise TaskProblem(f"gives its constructor {error}, which cannot be handed to a candidate") from error
        with self._lock:
            torch.manual_seed(self.weight_seed)
            self.model = self._placed(self._calling("Model", lambda: module.Model(*init)))
        self._models = {"initial": self.model}

    def _on_device(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.device.type == "cpu" else self.device

    def _calling(self, what: str, function: Callable[[], Any]) -> Any:
        try:
            with self._on_device(), torch.no_grad():
                return function()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            raise TaskProblem(f"fails in {what}: {type(error).__name__}: {one_line(error)}") from error

    def _placed(self, model: torch.nn.Module) -> torch.nn.Module:
        model = model.to(self.device)
        return model.to(self.dtype) if self.dtype is not None else model

    def state(self, weights: str = "initial") -> tuple[list[str], list[torch.Tensor]]:
        """Names and values of all parameters and buffers; `weights` is `initial` or `changed`."""
        model = self.model_with(weights)
        named = dict(model.named_parameters()) | dict(model.named_buffers())
        return list(named), [tensor.detach() for tensor in named.values()]

    def model_with(self, weights: str) -> torch.nn.Module:
        """The reference model, with the weights it was made with or with every parameter moved."""
        with self._lock, torch.no_grad():
            if weights not in self._models:
                torch.manual_seed(derived_seed(self._secret, "changed weights"))
                changed = copy.deepcopy(self.model)
                for parameter in changed.parameters():
                    if parameter.is_floating_point():
                        width = float(parameter.double().std(correction=0))
                        parameter.add_(torch.randn_like(parameter), alpha=max(0.5 * width, 0.1))
                self._models[weights] = changed
            return self._models[weights]

    @property
    def has_parameters(self) -> bool:
        """Whether there is any weight that could be changed."""
        return any(parameter.is_floating_point() for parameter in self.model.parameters())

    def draw(self, trial: Trial) -> tuple[Any, list[torch.Tensor]]:
        """Fresh inputs for a trial, flattened: their form and their tensors."""
        with self._lock:
            torch.manual_seed(derived_seed(self._secret, "inputs", trial.draw))
            tensors: list[torch.Tensor] = []
            inputs = self._calling("get_inputs", self._module.get_inputs)
            try:
                form = flatten(list(inputs), tensors)
            except UnsupportedValue as error:
                raise TaskProblem(f"has {error} among its inputs, which cannot be handed to a candidate") from error
            tensors = [self._input(tensor.detach(), trial.change) for tensor in tensors]
            return form, tensors

    def _input(self, tensor: torch.Tensor, change: str) -> torch.Tensor:
        tensor = tensor.to(self.device)
        if not tensor.is_floating_point():
            return tensor
        if self.dtype is not None:
            tensor = tensor.to(self.dtype)
        if change == "signed":
            return tensor * (torch.randint(0, 2, tensor.shape, device=tensor.device) * 2 - 1).to(tensor.dtype)
        factor = {"": 1.0, "enlarged": _HALF_RANGE, "diminished": 1 / 16}[change]
        return tensor * factor if change else tensor

    def question(self, trial: Trial) -> Question | None:
        """The trial with its truth; None where it does not apply to this task.

        A variation does not apply where the reference leaves the finite numbers, or where there is
        nothing to vary. Raises TaskProblem when the reference fails on the task's own inputs.
        """
        with self._lock:
            if trial in self._kept:
                return self._kept[trial]
            question = self._ask(trial)
            size = question.bytes if question is not None else 0
            if self._kept_bytes + size <= self._limit:
                self._kept[trial] = question
                self._kept_bytes += size
            return question

    def fresh(self, trial: Trial) -> Question:
        """The question of a trial without variation, made anew and not kept."""
        with self._lock:
            question = self._ask(trial)
        assert question is not None
        return question

    def _ask(self, trial: Trial) -> Question | None:
        varies = bool(trial.change) or trial.weights != "initial"
        if trial.weights != "initial" and not self.has_parameters:
            return None
        form, tensors = self.draw(trial)
        if trial.change and not any(tensor.is_floating_point() for tensor in tensors):
            return None
        model = self.model_with(trial.weights)
        try:
            return self._answered(trial, form, tensors, model)
        except (TaskProblem, torch.OutOfMemoryError):
            if varies:
                return None
            raise

    def _answered(
        self, trial: Trial, form: Any, tensors: list[torch.Tensor], model: torch.nn.Module
    ) -> Question | None:
        given = [tensor.clone() for tensor in tensors]
        answer_form, own = self._forward(model, form, given)
        mutated = frozenset(
            index for index, (now, before) in enumerate(zip(given, tensors, strict=True)) if not _same(now, before)
        )
        exact = self._in_float64(model, form, tensors, answer_form)
        truth = Truth(own, exact if exact is not None else [t.double() if t.is_floating_point() else t for t in own])
        if trial.change and not all(_finite(tensor) for tensor in (*own, *truth.exact)):
            return None
        return Question(trial, form, tensors, truth, answer_form, noise(truth), mutated)

    def _forward(
        self, model: torch.nn.Module, form: Any, tensors: list[torch.Tensor]
    ) -> tuple[Any, list[torch.Tensor]]:
        result = self._calling("forward", lambda: model(*unflatten(form, tensors)))
        outputs: list[torch.Tensor] = []
        try:
            answer_form = flatten(result, outputs)
        except UnsupportedValue as error:
            raise TaskProblem(f"returns {error}, which cannot be compared") from error
        return answer_form, [tensor.detach().clone() for tensor in outputs]

    def _in_float64(
        self, model: torch.nn.Module, form: Any, tensors: list[torch.Tensor], answer_form: Any
    ) -> list[torch.Tensor] | None:
        """The reference's outputs in double precision; None where it does not run or fit there."""
        try:
            double = copy.deepcopy(model).double()
            wide = [tensor.double() if tensor.is_floating_point() else tensor.clone() for tensor in tensors]
            form64, outputs = self._forward(double, form, wide)
        except (TaskProblem, torch.OutOfMemoryError, RuntimeError, TypeError):
            return None
        return outputs if form64 == answer_form else None


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors hold the same values, NaN being equal to itself."""
    return torch.equal(one, other) or bool(torch.all((one == other) | ((one != one) & (other != other))))


def _finite(tensor: torch.Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex()) or bool(torch.isfinite(tensor).all())
