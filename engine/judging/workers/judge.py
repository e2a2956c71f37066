"""The judge: holds the reference, secret inputs and expected outputs of one task on one device.

It is trusted and lives as long as the task is judged. Each candidate is examined in a thread of its
own; the engine is told of progress and of the verdict over one channel.
"""

from __future__ import annotations

import contextlib
import os
import queue
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
from engine.judging.workers.audit import MARGIN, audit_task, nearest_wrong_answer
from engine.judging.workers.baselines import Compared
from engine.judging.workers.clock import Contender
from engine.judging.workers.device_lock import ANOTHER_CANDIDATE
from engine.judging.workers.examination import Examination, Findings
from engine.judging.workers.exchange import Arena, MemfdArena
from engine.judging.workers.faults import one_line
from engine.judging.workers.gpu import Gpu
from engine.judging.workers.large_form import LargeForm
from engine.judging.workers.numerics import Gate
from engine.judging.workers.reference import Reference
from engine.judging.workers.trials import AGAIN, TRIALS, Trial
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


_PATIENCE_S = 300.0
"""How long the engine may take to say that the device is free; it waits less itself."""


class _Arrivals:
    """Processes that one thread asks for and another receives."""

    def __init__(self) -> None:
        self._arrived: dict[str, Answerer] = {}
        self._changed = threading.Condition()

    def put(self, name: str, answerer: Answerer) -> None:
        """A process is there."""
        with self._changed:
            self._arrived[name] = answerer
            self._changed.notify_all()

    def take(self, name: str) -> Answerer:
        """Waits for a process."""
        with self._changed:
            self._changed.wait_for(lambda: name in self._arrived)
            return self._arrived.pop(name)


class Judge:
    """The loop: opens examinations as the engine hands contestants over."""

    def __init__(self, channel: Channel, settings: JudgeSettings, device: str, task: Message) -> None:
        self._channel = channel
        self._settings = settings
        self._device = device
        self._task = task
        self._cases = [self._open_case(case) for case in task["cases"]]
        # It depends on the task alone, so that an earlier one holds.
        self._audit = task["audit"] or audit_task(task, device, self._dtype, settings.seed).to_json()
        # Memory that contestants map, until the engine says that they have ended.
        self._lent: dict[int, list[Arena]] = {}
        self._arrived = _Arrivals()
        self._told: dict[int, Message] = {}
        self._allowed: dict[int, queue.Queue[None]] = {}
        self._gpu = Gpu(settings, torch.device(device), self._wanted, self._measuring) if device != "cpu" else None

    def _open_case(self, case: Message) -> _Case:
        constants = dict(case["overrides"])
        if self._device == "cpu":
            constants |= case["small_overrides"]
        module = load_module(self._task["source"], constants, "task")
        reference = Reference(module, self._device, self._dtype, self._settings.seed, _kept_bytes(self._device))
        reference.check()
        large = large_form.describe(load_module(self._task["source"], case["overrides"], "task"), self._dtype)
        gate = _gate(case, reference)
        return _Case(case["name"], case["weight"], reference, large, dict(case["overrides"]), gate)

    @property
    def _dtype(self) -> torch.dtype | None:
        """What floating inputs and weights are cast to."""
        return dtype_of(self._settings.dtype) if self._settings.dtype else None

    def _measuring(self, name: str) -> None:
        self._channel.send({"event": "measuring", "name": name})

    def _wanted(self, name: str) -> Answerer:
        """Has the engine start a baseline's process, and waits for it."""
        self._channel.send({"event": "wanted", "name": name})
        return self._arrived.take(name)

    def _alone(self, number: int) -> None:
        """Returns when the engine finds nobody else computing on the device, or no use in waiting longer."""
        answer = self._allowed.setdefault(number, queue.Queue())
        self._channel.send({"id": number, "event": "alone"})
        with contextlib.suppress(queue.Empty):
            answer.get(timeout=_PATIENCE_S)

    # what the engine asks for

    def serve(self) -> None:
        """Runs until the engine hangs up."""
        self._channel.send({"event": "opened", **self._about_the_device()})
        while True:
            try:
                message, descriptors = self._channel.receive(max_descriptors=1)
            except WireClosed:
                return
            if message["op"] == "examine":
                connection = Channel.from_descriptor(descriptors[0])
                threading.Thread(target=self._examine, args=(message, connection), daemon=True).start()
            elif message["op"] == "ended":
                self._allowed.pop(message["id"], None)
                for arena in self._lent.pop(message["id"], []):
                    arena.close()
            elif message["op"] == "baseline":
                self._arrived.put(message["name"], Answerer(Channel.from_descriptor(descriptors[0])))
            elif message["op"] == "allowed":
                self._allowed.setdefault(message["id"], queue.Queue()).put(None)
            elif message["op"] == "start":
                # It waits for processes that arrive here.
                threading.Thread(target=self._start, args=(message,), daemon=True).start()

    def _start(self, message: Message) -> None:
        """Measures the baselines that are not known yet, and says how the task stands."""
        try:
            problems = self._measure_baselines(message) if self._gpu is not None else []
            self._channel.send(self._facts(problems))
        except WireClosed:
            return
        except Exception as error:
            traceback.print_exc()
            sys.stderr.flush()
            text = one_line(f"it failed on the baselines: {type(error).__name__}: {error}")
            with contextlib.suppress(WireClosed):
                self._channel.send({"event": "failed", "kind": "machine", "message": text})

    def _measure_baselines(self, message: Message) -> list[str]:
        assert self._gpu is not None
        for known in message["known"]:
            self._gpu.baselines.know(known["case"], known["tier"], Compared.from_json(known))
        for name in message["own"]:
            self._gpu.baselines.add_own(name, self._load_message())
        found = [
            self._gpu.measure_baselines(index, case.reference, case.overrides, lambda: self._alone(0))
            for index, case in enumerate(self._cases)
        ]
        return [problem for problem in found if problem]

    def _compared(self, case: int) -> Message:
        """What has been found of a case's baselines, by tier."""
        assert self._gpu is not None
        found = {tier: compared.to_json() for tier, compared in self._gpu.baselines.compared(case).items()}
        self._told[case] = found
        return found

    def _load_message(self) -> Message:
        """What makes a process import a candidate."""
        return {"op": "load", "entry": self._task["entry"], "function": self._task["function"]}

    def _facts(self, problems: Sequence[str]) -> Message:
        """What the engine tells people of the task before any candidate; `problems` keep it from being timed."""
        return {
            "event": "ready",
            "problem": "; ".join(problems),
            "audit": self._audit,
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
            "problem": large.problem if large is not None else "",
            "compared": {},
        }
        if self._gpu is not None:
            facts["compared"] = self._compared(index)
            facts["bounds"] = self._gpu.bounds(cost["bound"]) if cost is not None else {}
            facts["problem"] = "; ".join(filter(None, [facts["problem"], *self._gpu.baselines.problems.values()]))
        return facts

    def _about_the_device(self) -> Message:
        """Its name and id, and the versions that the nursery does not know, since it never looks at the GPU."""
        if self._gpu is None:
            return {"name": "cpu", "device_id": "", "toolchain": {}}
        major, minor = torch.cuda.get_device_capability(self._device)
        versions = {"cuda": str(torch.version.cuda), "arch": f"sm_{major}{minor}"}
        driver = self._gpu.nvml.driver() if self._gpu.nvml is not None else ""
        return {
            "name": torch.cuda.get_device_name(self._device),
            "device_id": self._gpu.id,
            "toolchain": versions | ({"driver": driver} if driver else {}),
        }

    # one candidate

    def _examine(self, request: Message, connection: Channel) -> None:
        """Examines one candidate on every case; its last message is the verdict, whatever happens.

        The request's `known` are fingerprints of candidates that have been timed: what compiles to one of them is not
        timed again.
        """
        number = request["id"]
        answerer = Answerer(connection)
        done: list[Findings] = []
        verdict: Message = {"verdict": "correct", "reason": "", "detail": ""}
        try:
            for index, case in enumerate(self._cases):
                self._examine_case(request, index, case, answerer, done)
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
        self, request: Message, index: int, case: _Case, answerer: Answerer, done: list[Findings]
    ) -> None:
        number = request["id"]

        def arenas(tensors: Sequence[torch.Tensor], margin: int = 0) -> Arena:
            arena = MemfdArena(tensors) if self._gpu is None else self._gpu.arenas.lend(tensors, margin)
            self._lent.setdefault(number, []).append(arena)
            return arena

        def report(message: Message) -> None:
            self._report(number, message)

        def waiting(what: str) -> None:
            ours = what == ANOTHER_CANDIDATE
            report({"event": "waiting", "for": what, "ours": ours} if what else {"event": "goes_on"})

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
        load = self._load_message() if not index else None
        findings = examination.findings
        done.append(findings)
        if self._gpu is None:
            examination.run(load)
            return
        confirming = request["confirms"]
        with self._gpu.lock.shared_by_turns(answerer, waiting):
            if confirming is None:
                examination.run(load)
            else:
                examination.look_again(load, confirming[index]["tuned"])
        if self._fingerprint(done) in request["known"]:
            return
        examination.enter("time")

        def check(trial: Trial, changes: list[torch.Tensor]) -> None:
            findings.stage = "after"
            examination.check_timed(case.reference.fresh(trial), changes)
            findings.stage = "time"

        best = request["best"]
        contender = Contender(
            answerer,
            index,
            case.reference,
            case.overrides,
            findings.tier if confirming is None else confirming[index]["tier"],
            check,
            arenas,
            best.get(case.name, float("inf")) if best is not None else None,
        )
        findings.measurement = self._gpu.clock.measure(contender, waiting, lambda: self._alone(number)).to_json()
        before = self._told[index]
        if (compared := self._compared(index)) != before:
            report({"event": "compared", "case": index, "compared": compared})
        with self._gpu.lock.shared_by_turns(answerer, waiting):
            examination.ask_afterwards()
            if confirming is None and index == len(self._cases) - 1:
                honesty.last_doubts(examination)


def _gate(case: Message, reference: Reference) -> Gate:
    """The gate of a case: its own tolerance, or tiers of which none comes near a wrong answer.

    A tolerance of which one part is given has zero for the other.
    """
    if case["atol"] is not None or case["rtol"] is not None:
        return Gate((case["atol"] or 0.0, case["rtol"] or 0.0))
    try:
        question, other = reference.question(TRIALS[0]), reference.question(AGAIN[0])
        assert question is not None and other is not None
        return Gate(cap=nearest_wrong_answer(question, other)[1] / MARGIN)
    except torch.OutOfMemoryError:
        # Wrong answers are as large as right ones; candidates may still fit one at a time.
        return Gate()


def _device_is_lost(error: Exception) -> bool:
    """Whether the judge's own use of the GPU has ended; running out of memory does not end it."""
    lost = getattr(torch, "AcceleratorError", RuntimeError)
    return isinstance(error, lost) and "CUDA error" in str(error) and not isinstance(error, torch.OutOfMemoryError)


def _kept_bytes(device: str) -> int:
    """Questions worth keeping: a part of what the device has."""
    if device == "cpu":
        return 2 << 30
    return int(torch.cuda.get_device_properties(device).total_memory) // 16


def _device(wanted: str) -> str:
    """The device to judge on. Raises RuntimeError in words where it is not there or cannot be used."""
    if wanted == "cpu":
        return "cpu"
    if torch.version.hip is not None:
        raise RuntimeError(
            f"torch {torch.__version__} is built for AMD GPUs and kernels are measured on NVIDIA's only; choose "
            "--device cpu, which models their times, or name another interpreter with --python"
        )
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
        if message["purpose"] != "judge":
            dtype = dtype_of(settings.dtype) if settings.dtype else None
            for_search = message["purpose"] == "audit for a search"
            audit = audit_task(message["task"], device, dtype, settings.seed, for_search=for_search)
            channel.send({"event": "audited", "audit": audit.to_json()})
            return
        judge = Judge(channel, settings, device, message["task"])
    except TaskProblem as problem:
        channel.send({"event": "failed", "kind": "task", "message": str(problem)})
        return
    except torch.OutOfMemoryError as error:
        channel.send({"event": "failed", "kind": "memory", "message": one_line(error)})
        return
    judge.serve()
