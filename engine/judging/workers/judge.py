"""The judge: holds the reference, secret inputs and expected outputs of one task on one device.

It is trusted and lives as long as the task is judged. Each candidate is examined in a thread of its
own; the engine is told of progress and of the verdict over one channel.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from engine.judging import sandbox_kernel
from engine.judging.sandbox import Sandbox
from engine.judging.settings import JudgeSettings
from engine.judging.wire import Channel, Message, WireClosed
from engine.judging.workers import honesty, large_form
from engine.judging.workers.answerer import Answerer, Fault, Gone
from engine.judging.workers.clock import Baseline
from engine.judging.workers.examination import Examination, Findings
from engine.judging.workers.exchange import Arena, MemfdArena
from engine.judging.workers.faults import one_line
from engine.judging.workers.gpu import Gpu
from engine.judging.workers.large_form import LargeForm
from engine.judging.workers.numerics import Gate
from engine.judging.workers.reference import Reference
from engine.judging.workers.trials import TRIALS, Trial
from engine.judging.workers.values import dtype_name, dtype_of
from engine.tasks.opening import TaskProblem, load_module


@dataclass(frozen=True, slots=True)
class _Case:
    """One case of the task: what it weighs, both of its forms, and the constants that make it."""

    name: str
    weight: float
    reference: Reference
    large: LargeForm | None
    overrides: dict[str, Any]
    gate: Gate


class Judge:
    """The loop: opens examinations as the engine hands contestants over."""

    def __init__(self, channel: Channel, settings: JudgeSettings, device: str, task: Message) -> None:
        self._channel = channel
        self._settings = settings
        self._device = device
        self._task = task
        self._cases = [self._open_case(case) for case in task["cases"]]
        # Memory that contestants map, until the engine says that they have ended.
        self._lent: dict[int, list[Arena]] = {}
        self._gpu = Gpu(settings, torch.device(device), self._measuring) if device != "cpu" else None

    def _open_case(self, case: Message) -> _Case:
        constants = dict(case["overrides"])
        if self._device == "cpu":
            constants |= case["small_overrides"]
        module = load_module(self._task["source"], constants, "task")
        dtype = dtype_of(self._settings.dtype) if self._settings.dtype else None
        reference = Reference(module, self._device, dtype, self._settings.seed, _kept_bytes(self._device))
        reference.question(TRIALS[0])
        large = large_form.describe(load_module(self._task["source"], case["overrides"], "task"), dtype)
        return _Case(case["name"], case["weight"], reference, large, dict(case["overrides"]), _gate(case))

    def _measuring(self, name: str) -> None:
        self._channel.send({"event": "measuring", "name": name})

    # what the engine asks for

    def serve(self) -> None:
        """Runs until the engine hangs up."""
        self._channel.send({"event": "opened"})
        while True:
            try:
                message, descriptors = self._channel.receive(max_descriptors=1)
            except WireClosed:
                return
            if message["op"] == "examine":
                connection = Channel.from_descriptor(descriptors[0])
                arguments = (message["id"], connection, frozenset(message["known"]))
                threading.Thread(target=self._examine, args=arguments, daemon=True).start()
            elif message["op"] == "ended":
                for arena in self._lent.pop(message["id"], []):
                    arena.close()
            elif message["op"] == "baseline":
                assert self._gpu is not None
                answerer = Answerer(Channel.from_descriptor(descriptors[0]))
                self._gpu.clock.add(Baseline(message["name"], answerer))
            elif message["op"] == "start":
                if self._gpu is not None:
                    for index, case in enumerate(self._cases):
                        self._gpu.measure_baselines(index, case.reference, case.overrides)
                self._channel.send(self._facts())

    def _facts(self) -> Message:
        """What the engine tells people of the task before any candidate."""
        return {
            "event": "ready",
            "name": "cpu" if self._device == "cpu" else torch.cuda.get_device_name(self._device),
            "toolchain": _toolchain(self._device),
            "cases": [self._case_facts(index, case) for index, case in enumerate(self._cases)],
        }

    def _case_facts(self, index: int, case: _Case) -> Message:
        large = case.large
        if large is not None and large.contestant:
            inputs = [{"shape": item["shape"], "dtype": item["dtype"]} for item in large.contestant["inputs"]]
        else:
            _, tensors = case.reference.draw(TRIALS[0])
            inputs = [{"shape": list(tensor.shape), "dtype": dtype_name(tensor.dtype)} for tensor in tensors]
        cost = large.cost if large is not None else None
        facts: Message = {
            "name": case.name,
            "weight": case.weight,
            "inputs": inputs,
            "cost": cost if self._gpu is None else None,
            "bound": cost["bound"] if cost is not None else None,
            "bounds": {},
            "bands": {},
            "problem": large.problem if large is not None else "",
            "baselines": {},
        }
        if self._gpu is not None:
            facts["baselines"] = self._gpu.times(index)
            facts["bounds"] = self._gpu.bounds(cost["bound"]) if cost is not None else {}
            facts["problem"] = "; ".join(filter(None, [facts["problem"], *self._gpu.problems()]))
        return facts

    # one candidate

    def _examine(self, number: int, connection: Channel, known: frozenset[str]) -> None:
        """Examines one candidate on every case; its last message is the verdict, whatever happens.

        `known` are fingerprints of candidates that have been timed: what compiles to one of them is not timed again.
        """
        answerer = Answerer(connection)
        done: list[Findings] = []
        verdict: Message = {"verdict": "correct", "reason": "", "detail": ""}
        try:
            for index, case in enumerate(self._cases):
                self._examine_case(number, index, case, answerer, done, known)
        except Fault as fault:
            done[-1].labels.update(fault.labels)
            verdict = {"verdict": fault.verdict, "reason": fault.reason, "detail": fault.detail}
        except Gone:
            verdict = {"verdict": None, "reason": "", "detail": ""}
        except WireClosed:
            return
        except Exception as error:
            traceback.print_exc()
            if _device_is_lost(error):
                # Nothing can be judged here any more; the engine starts another judge.
                print(one_line(f"the GPU failed: {error}"), file=sys.stderr, flush=True)
                os._exit(1)
            sys.stderr.flush()
            reason = one_line(f"the judge failed: {type(error).__name__}: {error}")
            verdict = {"verdict": "infrastructure_error", "reason": reason, "detail": ""}
        finally:
            answerer.close()
        # The engine is gone where nobody listens; the main thread notices too.
        with contextlib.suppress(WireClosed):
            cases = [findings.to_json() for findings in done]
            self._report(
                number, {"event": "verdict", **verdict, "cases": cases, "fingerprint": self._fingerprint(done)}
            )

    def _fingerprint(self, done: Sequence[Findings]) -> str | None:
        """What two candidates share if they run the same code in every case; None where that is not known."""
        prints = [findings.fingerprint for findings in done if findings.fingerprint is not None]
        return "+".join(prints) if len(prints) == len(self._cases) else None

    def _report(self, number: int, message: Message) -> None:
        self._channel.send({"id": number, **message})

    def _examine_case(
        self,
        number: int,
        index: int,
        case: _Case,
        answerer: Answerer,
        done: list[Findings],
        known: frozenset[str],
    ) -> None:
        def arenas(tensors: Sequence[torch.Tensor], margin: int = 0) -> Arena:
            arena = MemfdArena(tensors) if self._gpu is None else self._gpu.arenas.lend(tensors, margin)
            self._lent.setdefault(number, []).append(arena)
            return arena

        def report(message: Message) -> None:
            self._report(number, message)

        def waiting(begins: bool) -> None:
            report({"event": "waiting" if begins else "goes_on"})

        modelled = case.large if self._gpu is None else None
        examination = Examination(
            answerer,
            index,
            case.reference,
            modelled,
            self._settings,
            case.gate,
            arenas,
            report,
            interpreted=self._gpu is None,
        )
        load = {"op": "load", "entry": self._task["entry"], "function": self._task["function"]} if not index else None
        findings = examination.findings
        done.append(findings)
        if self._gpu is None:
            examination.run(load)
            return
        with self._gpu.lock.shared_but_for(answerer, waiting):
            examination.run(load)
        if self._fingerprint(done) in known:
            return
        examination.enter("time")

        def check(trial: Trial) -> None:
            findings.stage = "after"
            examination.check_timed(case.reference.fresh(trial))
            findings.stage = "time"

        measured = self._gpu.clock.measure(
            answerer, index, case.reference, case.overrides, findings.tier, check, waiting, arenas
        )
        findings.measurement = measured.to_json()
        with self._gpu.lock.shared_but_for(answerer, waiting):
            examination.ask_afterwards()
            if index == len(self._cases) - 1:
                honesty.last_doubts(examination)


def _gate(case: Message) -> Gate:
    """A tolerance of which one part is given has zero for the other."""
    if case["atol"] is None and case["rtol"] is None:
        return Gate()
    return Gate((case["atol"] or 0.0, case["rtol"] or 0.0))


def _device_is_lost(error: Exception) -> bool:
    """Whether the judge's own use of the GPU has ended; running out of memory does not end it."""
    lost = getattr(torch, "AcceleratorError", RuntimeError)
    return isinstance(error, lost) and "CUDA error" in str(error) and not isinstance(error, torch.OutOfMemoryError)


def _kept_bytes(device: str) -> int:
    """Questions worth keeping: a part of what the device has."""
    if device == "cpu":
        return 2 << 30
    return int(torch.cuda.get_device_properties(device).total_memory) // 16


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
    if Sandbox.from_json(message["sandbox"]).exposes_workers:
        sandbox_kernel.hide_memory()
    try:
        device = _device(settings.device)
    except RuntimeError as error:
        channel.send({"event": "failed", "kind": "machine", "message": str(error)})
        return
    if device == "cpu":
        torch.set_num_threads(1)
    else:
        torch.cuda.set_device(torch.device(device))
        torch.backends.cudnn.allow_tf32 = False
    channel.send({"event": "device", "device": device})
    try:
        judge = Judge(channel, settings, device, message["task"])
    except TaskProblem as problem:
        channel.send({"event": "failed", "kind": "task", "message": str(problem)})
        return
    judge.serve()
