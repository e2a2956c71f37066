"""The task's own code, as the judge runs it: models, secret inputs, and what must come out.

A task is opened as a module in the KernelBench format: `class Model`, `get_inputs()` and optionally
`get_init_inputs()`. Its large form is the module with a case's overrides; its small form, which the
interpreter can run, has the small overrides as well. `DOMAINS` and `MUTATES` say more of its inputs.
"""

from __future__ import annotations

import copy
import threading
import types
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from engine.judging.workers import emphasis, variations
from engine.judging.workers.faults import one_line
from engine.judging.workers.numerics import Truth, alike, distance, noise, restless_from
from engine.judging.workers.traits import Traits, traits_of
from engine.judging.workers.trials import (
    AMPLIFIED_DRAW,
    CONTENT_CHANGES,
    DRAWS,
    EVALUATING,
    TRAINING,
    TRIALS,
    VALUE_CHANGES,
    Question,
    Trial,
    derived_seed,
)
from engine.judging.workers.values import UnsupportedValue, count_tensors, flatten, unflatten
from engine.tasks.domains import Domain
from engine.tasks.opening import TaskProblem, declared_arguments

_CPU_OUT_OF_MEMORY = "DefaultCPUAllocator: can't allocate memory"
"""What PyTorch says where the host's memory does not suffice (c10/core/impl/alloc_cpu.cpp)."""


@dataclass(frozen=True, slots=True)
class _Declared:
    """What the task says of the tensors among its inputs, in order.

    A nested input has one name and domain. `mutated` are those that are outputs; None where it does not say.
    """

    names: tuple[str, ...]
    domains: tuple[Domain, ...]
    mutated: tuple[int, ...] | None


def _declared(module: types.ModuleType, form: list[Any]) -> _Declared:
    declared = declared_arguments(module, len(form))
    owners = [index for index, part in enumerate(form) for _ in range(count_tensors(part))]
    mutated = declared.mutated
    return _Declared(
        tuple(declared.names[owner] for owner in owners),
        tuple(declared.domains[owner] for owner in owners),
        None if mutated is None else tuple(i for i, owner in enumerate(owners) if declared.names[owner] in mutated),
    )


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
        self._trials: tuple[Trial, ...] | None = None
        self._shown: dict[str, bool] = {}
        self._chosen: dict[int, torch.Tensor] = {}
        self._declared: _Declared | None = None

    def _on_device(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.device.type == "cpu" else self.device

    def _calling(self, what: str, function: Callable[[], Any]) -> Any:
        try:
            with self._on_device(), torch.no_grad():
                return function()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            if isinstance(error, MemoryError) or _CPU_OUT_OF_MEMORY in str(error):
                raise torch.OutOfMemoryError(one_line(error)) from error
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
                self._models[weights] = self._changed()
            return self._models[weights]

    def _changed(self) -> torch.nn.Module:
        torch.manual_seed(derived_seed(self._secret, "changed weights"))
        form, tensors = self.draw(Trial("", DRAWS + 3))
        torch.manual_seed(derived_seed(self._secret, "changed weights", 2))
        return emphasis.changed(self.model, self._runs(form), tensors)

    def _runs(self, form: Any) -> emphasis.Run:
        def run(model: torch.nn.Module, tensors: list[torch.Tensor]) -> list[torch.Tensor] | None:
            try:
                _, outputs = self._forward(model, form, [tensor.clone() for tensor in tensors])
            except (TaskProblem, torch.OutOfMemoryError):
                return None
            return outputs if all(map(_finite, outputs)) else None

        return run

    def trials(self) -> tuple[Trial, ...]:
        """Everything that a candidate must answer for, changed weights last.

        One draw is asked for in evaluation mode where the reference does the same in either mode. Each input that
        hardly shows in the outputs is asked for once more, as large as it takes to show.
        """
        with self._lock:
            if self._trials is None:
                self._trials = (
                    *TRIALS[:-1],
                    TRAINING if self.question(EVALUATING) is None else EVALUATING,
                    *self._amplified_trials(),
                    TRIALS[-1],
                )
            return self._trials

    def _amplified_trials(self) -> list[Trial]:
        form, tensors = self.draw(Trial("", AMPLIFIED_DRAW))
        found = []
        with torch.no_grad():
            assert self._declared is not None
            for index, domain in enumerate(self._declared.domains[: emphasis.MOST_AMPLIFIED]):
                if not domain.scales:
                    continue
                torch.manual_seed(derived_seed(self._secret, "amplified", index))
                chosen = emphasis.amplified_input(self.model, self._runs(form), tensors, index)
                if chosen is not None:
                    self._chosen[index] = chosen
                    found.append(Trial(f"input {index} amplified", AMPLIFIED_DRAW, amplified=index))
        return found

    def shows(self, name: str) -> bool:
        """Whether right answers prove that a weight, as it is at first, was used: it clearly shows in them."""
        with self._lock, torch.no_grad():
            if name not in self._shown:
                form, tensors = self.draw(TRIALS[0])
                self._shown[name] = emphasis.shows(self.model, self._runs(form), tensors, name)
            return self._shown[name]

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
            if self._declared is None:
                self._declared = _declared(self._module, form)
            tensors = [
                self._input(tensor.detach(), trial.change, domain)
                for tensor, domain in zip(tensors, self._declared.domains, strict=True)
            ]
            if trial.amplified is not None:
                tensors[trial.amplified] = self._chosen[trial.amplified].clone()
            if trial.change == "fewer rows":
                tensors = variations.fewer_rows(tensors) or tensors
            return form, tensors

    def _input(self, tensor: torch.Tensor, change: str, domain: Domain) -> torch.Tensor:
        tensor = tensor.to(self.device)
        if self.dtype is not None and tensor.is_floating_point():
            tensor = tensor.to(self.dtype)
        if change == "exchanged":
            return variations.exchanged(tensor) if tensor.is_floating_point() and domain.admits(change) else tensor
        return domain.varied(tensor, change) if change in VALUE_CHANGES else tensor

    def _varies(self, change: str, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether there is anything that a change of the inputs may be made to."""
        assert self._declared is not None
        floating = [
            domain for tensor, domain in zip(tensors, self._declared.domains, strict=True) if tensor.is_floating_point()
        ]
        return any(domain.admits(change) for domain in floating) if change in CONTENT_CHANGES else bool(floating)

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
        varies = bool(trial.change) or trial.amplified is not None or trial.weights != "initial" or not trial.training
        if trial.weights != "initial" and not self.has_parameters:
            return None
        form, tensors = self.draw(trial)
        if trial.change and not self._varies(trial.change, tensors):
            return None
        model = self.model_with(trial.weights)
        try:
            if not trial.training and not self._same_in_evaluation(form, tensors):
                return None
            return self._answered(trial, form, tensors, model)
        except (TaskProblem, torch.OutOfMemoryError):
            if varies:
                return None
            raise

    def _same_in_evaluation(self, form: Any, tensors: list[torch.Tensor]) -> bool:
        """Whether the reference does the same in training and in evaluation mode, as a candidate then must."""
        evaluating = copy.deepcopy(self.model).eval()
        training = self._forward(self.model, form, [tensor.clone() for tensor in tensors])[1]
        return all(map(_same, self._forward(evaluating, form, [tensor.clone() for tensor in tensors])[1], training))

    def _answered(
        self, trial: Trial, form: Any, tensors: list[torch.Tensor], model: torch.nn.Module
    ) -> Question | None:
        given = [tensor.clone() for tensor in tensors]
        # A reference that draws random numbers draws the same ones in either precision.
        seed = derived_seed(self._secret, "forward", trial.draw)
        torch.manual_seed(seed)
        answer_form, own, traits = self._forward_with_traits(model, form, given)
        mutated = self._mutated(given, tensors)
        wide = [tensor.double() if tensor.is_floating_point() else tensor.clone() for tensor in tensors]
        torch.manual_seed(seed)
        exact = self._in_float64(model, form, wide, answer_form)
        truth = Truth(own, exact if exact is not None else _widened(own))
        changed = [given[index] for index in mutated]
        changes = Truth(changed, [wide[index] for index in mutated] if exact is not None else _widened(changed))
        if trial.change and not all(_finite(tensor) for tensor in (*own, *truth.exact)):
            return None
        return Question(
            trial, form, tensors, truth, answer_form, max(noise(truth), noise(changes)), mutated, changes, traits
        )

    def everything(
        self, model: torch.nn.Module, form: Any, tensors: Sequence[torch.Tensor], mutated: Sequence[int]
    ) -> list[torch.Tensor]:
        """A model's outputs, then what it makes of the inputs in `mutated`. Raises TaskProblem."""
        given = [tensor.clone() for tensor in tensors]
        _, outputs = self._forward(model, form, given)
        return [*outputs, *(given[index] for index in mutated)]

    def check(self) -> None:
        """Makes sure that a candidate could be right.

        Raises:
            TaskProblem: there is nothing to compute or to compare, or the reference answers the same question
                differently when it is asked again.
        """
        question = self.question(TRIALS[0])
        assert question is not None
        for name, tensor in zip(self.input_names, question.tensors, strict=True):
            if not tensor.numel():
                raise TaskProblem(f"has an input without elements: {name} has shape {list(tensor.shape)}")
        own = [*question.truth.own, *question.changes.own]
        if not any(tensor.numel() for tensor in own):
            raise TaskProblem("has nothing to compare: its reference returns no tensor with elements, and changes none")
        if self.restlessness(question) > restless_from(own):
            raise TaskProblem(
                "gives other outputs when it is called again with the same inputs, which no candidate can match; its "
                "reference must draw no random numbers (dropout does, unless the model is in evaluation mode) and keep "
                "nothing from call to call"
            )

    def restlessness(self, question: Question) -> float:
        """How far the outputs are from those to the same inputs in an earlier call, as a relative error."""
        with self._lock, torch.no_grad():
            torch.manual_seed(derived_seed(self._secret, "again"))
            again = self.everything(self.model, question.form, question.tensors, question.mutated)
        own = [*question.truth.own, *question.changes.own]
        found = distance(again, Truth(own, _widened(own))) if alike(again, own) else None
        return found.relative if found is not None and not found.problem else 1.0

    def another_model(self) -> torch.nn.Module:
        """The model with other initial weights."""
        with self._lock:
            torch.manual_seed(derived_seed(self._secret, "other weights"))
            init = unflatten(self.init_form, self.init_constants)
            return self._placed(self._calling("Model", lambda: self._module.Model(*init)))

    @property
    def input_names(self) -> tuple[str, ...]:
        """What the tensors among the inputs are called, in order."""
        if self._declared is None:
            self.draw(TRIALS[0])
        assert self._declared is not None
        return self._declared.names

    def _mutated(self, given: Sequence[torch.Tensor], before: Sequence[torch.Tensor]) -> tuple[int, ...]:
        """The inputs that are outputs: those that the task declares, or else those that have changed."""
        assert self._declared is not None
        changed = [i for i, (now, then) in enumerate(zip(given, before, strict=True)) if not _same(now, then)]
        if self._declared.mutated is None:
            return tuple(changed)
        if undeclared := [index for index in changed if index not in self._declared.mutated]:
            name = self._declared.names[undeclared[0]]
            raise TaskProblem(f"changes its argument {name} in place, which its MUTATES does not name")
        return self._declared.mutated

    def _forward(
        self, model: torch.nn.Module, form: Any, tensors: list[torch.Tensor]
    ) -> tuple[Any, list[torch.Tensor]]:
        answer_form, own, _ = self._forward_with_traits(model, form, tensors)
        return answer_form, own

    def _forward_with_traits(
        self, model: torch.nn.Module, form: Any, tensors: list[torch.Tensor]
    ) -> tuple[Any, list[torch.Tensor], tuple[Traits, ...]]:
        result = self._calling("forward", lambda: model(*unflatten(form, tensors)))
        outputs: list[torch.Tensor] = []
        try:
            answer_form = flatten(result, outputs)
        except UnsupportedValue as error:
            raise TaskProblem(f"returns {error}, which cannot be compared") from error
        return answer_form, [tensor.detach().clone() for tensor in outputs], tuple(traits_of(outputs, tensors))

    def _in_float64(
        self, model: torch.nn.Module, form: Any, tensors: list[torch.Tensor], answer_form: Any
    ) -> list[torch.Tensor] | None:
        """The reference's outputs in double precision; None where it does not run or fit there."""
        try:
            double = copy.deepcopy(model).double()
            form64, outputs = self._forward(double, form, tensors)
        except (TaskProblem, torch.OutOfMemoryError, RuntimeError, TypeError):
            return None
        return outputs if form64 == answer_form else None


def _widened(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.double() if tensor.is_floating_point() else tensor for tensor in tensors]


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors hold the same values, NaN being equal to itself."""
    return torch.equal(one, other) or bool(torch.all((one == other) | ((one != one) & (other != other))))


def _finite(tensor: torch.Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex()) or bool(torch.isfinite(tensor).all())
