"""The judge: holds the reference, secret inputs and expected outputs of one task on one device.

It is trusted and lives as long as the task is judged. Each candidate is examined in a thread of its
own; the engine is told of progress and of the verdict over one channel.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine.judging.settings import JudgeSettings
from engine.judging.wire import Channel, Message, WireClosed
from engine.judging.workers import large_form
from engine.judging.workers.examination import Examination, Fault, Findings, Gone
from engine.judging.workers.exchange import Arena, MemfdArena
from engine.judging.workers.large_form import LargeForm
from engine.judging.workers.reference import TRIALS, Reference, TaskProblem, load_module
from engine.judging.workers.values import dtype_name, dtype_of


@dataclass(frozen=True, slots=True)
class _Case:
    """One case of the task: what it weighs, and both of its forms."""

    name: str
    weight: float
    reference: Reference
    large: LargeForm | None


class Judge:
    """The loop: opens examinations as the engine hands contestants over."""

    def __init__(self, channel: Channel, settings: JudgeSettings, device: str, task: Message) -> None:
        self._channel = channel
        self._settings = settings
        self._device = device
        self._task = task
        self._cases = [self._open_case(case) for case in task["cases"]]

    def _open_case(self, case: Message) -> _Case:
        constants = dict(case["overrides"])
        if self._device == "cpu":
            constants |= case["small_overrides"]
        module = load_module(self._task["source"], constants, "task")
        dtype = dtype_of(self._settings.dtype) if self._settings.dtype else None
        reference = Reference(module, self._device, dtype, self._settings.seed)
        reference.question(TRIALS[0])
        large = None
        if self._device == "cpu":
            large = large_form.describe(load_module(self._task["source"], case["overrides"], "task"), dtype)
        return _Case(case["name"], case["weight"], reference, large)

    def facts(self) -> Message:
        """What the engine tells people of the task before any candidate."""
        return {
            "event": "ready",
            "name": "cpu" if self._device == "cpu" else torch.cuda.get_device_name(self._device),
            "toolchain": _toolchain(self._device),
            "cases": [self._case_facts(case) for case in self._cases],
        }

    def _case_facts(self, case: _Case) -> Message:
        if case.large is not None and case.large.contestant:
            inputs = [{"shape": item["shape"], "dtype": item["dtype"]} for item in case.large.contestant["inputs"]]
        else:
            _, tensors = case.reference.draw(TRIALS[0])
            inputs = [{"shape": list(tensor.shape), "dtype": dtype_name(tensor.dtype)} for tensor in tensors]
        return {
            "name": case.name,
            "weight": case.weight,
            "inputs": inputs,
            "cost": case.large.cost if case.large is not None else None,
            "bound": case.large.cost["bound"] if case.large is not None and case.large.cost is not None else None,
            "bound_us": None,
            "problem": case.large.problem if case.large is not None else "",
            "baselines": {},
        }

    def serve(self) -> None:
        """Runs until the engine hangs up."""
        self._channel.send(self.facts())
        while True:
            try:
                message, descriptors = self._channel.receive(max_descriptors=1)
            except WireClosed:
                return
            connection = Channel.from_descriptor(descriptors[0])
            threading.Thread(target=self._examine, args=(message["id"], connection), daemon=True).start()

    def _examine(self, number: int, connection: Channel) -> None:
        """Examines one candidate on every case; its last message is the verdict, whatever happens."""

        def report(message: Message) -> None:
            self._channel.send({"id": number, **message})

        done: list[Findings] = []
        verdict: Message = {"verdict": "correct", "reason": "", "detail": ""}
        try:
            for index, case in enumerate(self._cases):
                examination = Examination(
                    connection, index, case.reference, case.large, self._settings, self._arena, report
                )
                done.append(examination.findings)
                try:
                    if index == 0:
                        examination.load()
                    examination.run()
                finally:
                    examination.close()
        except Fault as fault:
            done[-1].labels.update(fault.labels)
            verdict = {"verdict": fault.verdict, "reason": fault.reason, "detail": fault.detail}
        except Gone:
            verdict = {"verdict": None, "reason": "", "detail": ""}
        except WireClosed:
            return
        except Exception as error:
            traceback.print_exc()
            sys.stderr.flush()
            reason = f"the judge failed: {type(error).__name__}: {error}"
            verdict = {"verdict": "infrastructure_error", "reason": reason, "detail": ""}
        finally:
            connection.close()
        # The engine is gone where nobody listens; the main thread notices too.
        with contextlib.suppress(WireClosed):
            report({"event": "verdict", **verdict, "cases": [findings.to_json() for findings in done]})

    def _arena(self, purpose: str, tensors: Sequence[torch.Tensor]) -> Arena:
        return MemfdArena(tensors)


def _toolchain(device: str) -> dict[str, str]:
    """The versions that the nursery does not know, since it never looks at the GPU."""
    if device == "cpu":
        return {}
    major, minor = torch.cuda.get_device_capability(device)
    return {"cuda": str(torch.version.cuda), "arch": f"sm_{major}{minor}"}


def _device(wanted: str) -> str:
    """The device to judge on; MachineProblem in words where it is not there."""
    if wanted == "cpu":
        return "cpu"
    if torch.cuda.is_available():
        return "cuda:0"
    if wanted == "auto":
        return "cpu"
    raise RuntimeError(f"there is no device {wanted}: torch {torch.__version__} finds no GPU")


def main(channel: Channel) -> None:
    """Says which device there is, opens the task, and serves."""
    message, _ = channel.receive()
    settings = JudgeSettings.from_json(message["settings"])
    try:
        device = _device(settings.device)
    except RuntimeError as error:
        channel.send({"event": "failed", "kind": "machine", "message": str(error)})
        return
    if device == "cpu":
        torch.set_num_threads(1)
    channel.send({"event": "device", "device": device})
    try:
        judge = Judge(channel, settings, device, message["task"])
    except TaskProblem as problem:
        channel.send({"event": "failed", "kind": "task", "message": str(problem)})
        return
    judge.serve()
