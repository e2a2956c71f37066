"""A small search in a real database, the same every time, for the tests of the cockpit."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from engine.records import (
    Candidate,
    CandidateState,
    CaseResult,
    Check,
    Evaluation,
    KernelResources,
    Measurement,
    MeasurementKind,
    Numerics,
    ProposerKind,
    RunState,
    Step,
    Task,
    Verdict,
)
from engine.settings import RunSettings
from engine.store.control import Control
from engine.store.run_store import RunStore

NOW = 1_760_000_000.0
"""The present, in Unix seconds; the grove's times lie before it."""

EAGER_US = 58.4
BOUND_US = 22.1
HOSTILE = "[/b] closes nothing [bold] \x1b[31mred"

_KERNEL = '''"""Softmax over rows: {idea}."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_rows(x_ptr, out_ptr, columns, stride, BLOCK: tl.constexpr):
    """One program a row; the row stays in registers."""
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    values = tl.load(x_ptr + row * stride + offsets, mask=mask, other=-float("inf"))
    values = values - tl.max(values, axis=0)
    numerator = tl.exp(values)
    tl.store(out_ptr + row * stride + offsets, numerator / tl.sum(numerator, axis=0), mask=mask)


class ModelNew(nn.Module):
    """Rows of any length up to BLOCK."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape
        out = torch.empty_like(x)
        softmax_rows[(rows,)](x, out, columns, x.stride(0), BLOCK={block}, num_warps={warps})
        return out
'''


def kernel(idea: str = "online softmax", block: int = 1024, warps: int = 4) -> str:
    """A module as a proposer writes it."""
    return _KERNEL.format(idea=idea, block=block, warps=warps)


def task(name: str = "softmax") -> Task:
    """A task whose source nobody runs here."""
    return Task(name, "softmax", "kernelbench", f"{name}.py", f"# the reference of {name}\n")


def correct(speedup: float, *, labels: tuple[str, ...] = (), log: str = "") -> Evaluation:
    """A verdict of the judge on a right kernel."""
    time_us = EAGER_US / speedup
    measured = Measurement(MeasurementKind.MODELLED, time_us, (time_us * 0.99, time_us * 1.01))
    baselines = {"eager": EAGER_US, "compile": 41.0}
    return Evaluation(
        Verdict.CORRECT,
        "time",
        "",
        labels=labels,
        numerics=Numerics("exact", 1.8e-7, 3.0e-6, 1.1e-7, True, True),
        checks=(Check("zeros", True), Check("repeated_call", True, "the same twice")),
        cases=(CaseResult("default", 1.0, Verdict.CORRECT, measured, baselines, BOUND_US),),
        time_us=time_us,
        speedup={"eager": speedup, "compile": 41.0 / time_us},
        bound_fraction=BOUND_US / time_us,
        static=(KernelResources("softmax_rows", "sm_90", 40, 0, 16640),),
        fingerprint=f"speedup {speedup}",
        device="modelled sm_90",
        log=log,
        seconds=0.42,
    )


def wrong(verdict: Verdict, reason: str, log: str = "") -> Evaluation:
    """A verdict of the judge on a kernel that is not right."""
    checks = (Check("zeros", True), Check("unwritten_memory", False, "row 3 keeps the poison"))
    return Evaluation(verdict, "correct", reason, checks=checks, log=log, seconds=0.2)


class Grove:
    """A run and its engine's side of the database, played by this process."""

    def __init__(self, db: Path, *, budget: int = 40, name: str = "", gate: bool = False) -> None:
        self.db = db
        with Control(db) as control:
            self.run = control.create_run(task(), RunSettings(budget=budget), name)
        self.gate = gate
        self.store = RunStore.take(db, self.run)
        self.store.set_state(RunState.RUNNING)
        self.store.task_opened("CPU, modelled sm_90", "modelled", {"kind": "modelled"}, {"eager": EAGER_US})

    def propose(
        self, parent: int | None, idea: str, *, step: Step = Step.LOCAL, source: str | None = None, gate: bool = False
    ) -> int:
        """Adds a candidate as far as its source."""
        above = self.candidate(parent) if parent else None
        why = {"policy": "ucb", "visits": 3, "chosen": "expand here"}
        number = self.store.add_candidate(above, step if parent else Step.STRUCTURAL, ProposerKind.COMPILER, why)
        text = kernel(idea, 256 + number) if source is None else source
        self.store.proposed(number, text, idea, {"structure": "rows", "BLOCK": 256 + number}, gate or self.gate)
        return number

    def judge(self, number: int, evaluation: Evaluation) -> None:
        """Gives a candidate its verdict."""
        assert self.store.claim(number)
        speedup = evaluation.speedup.get("eager")
        self.store.evaluated(number, evaluation, speedup, 0.5)

    def grow(self, parent: int | None, idea: str, speedup: float, **more: Any) -> int:
        """Adds a candidate that turns out right."""
        number = self.propose(parent, idea, **more)
        self.judge(number, correct(speedup))
        return number

    def candidate(self, number: int) -> Candidate:
        """A candidate as the database has it."""
        return next(each for each in self.store.candidates() if each.number == number)

    def state(self, number: int) -> CandidateState:
        """The state of a candidate."""
        return self.candidate(number).state

    def plant(self) -> None:
        """A tree that shows every kind of outcome; the best is 6."""
        self.grow(None, "online softmax, one row a program", 1.21)
        self.grow(1, "1024 values at a time, 8 warps", 1.42)
        self.judge(
            self.propose(1, "2048 values at a time"), wrong(Verdict.INCORRECT, f"relative error 3.1e-2 {HOSTILE}")
        )
        self.judge(
            self.propose(2, "768 values at a time"),
            wrong(
                Verdict.COMPILE_ERROR,
                "at 12:24: arange's range must be a power of two\n    offsets = tl.arange(0, 768)",
                log="compiling softmax_rows\n[/b] is no tag here\n",
            ),
        )
        self.grow(None, "several rows a program", 0.87)
        self.grow(5, "4 rows a program, 4 warps", 1.88)
        twin = self.propose(6, "4 rows a program, 8 warps")
        self.judge(twin, correct(1.88))
        self.judge(self.propose(6, "split rows, atomics"), correct(1.93, labels=("unstable",)))
        self.propose(2, "two stages", gate=True)
        self.propose(5, "eviction hints", gate=True)
        number = self.propose(6, "16 warps")
        assert self.store.claim(number)
        self.propose(5, "8 rows a program")

    def fix_times(self, heartbeat_age: float = 2.0) -> None:
        """Moves everything to fixed times, so that pictures of the screens compare."""
        connection = sqlite3.connect(self.db)
        with connection:
            start = NOW - 600
            connection.execute(
                "UPDATE runs SET created_at = ?, started_at = ?, active_seconds = 245", (start, start + 1)
            )
            connection.execute("UPDATE leases SET heartbeat_at = ?, taken_at = ?", (NOW - heartbeat_age, start))
            connection.execute("UPDATE candidates SET created_at = ? + number, changed_at = ? + number", (start, start))
            connection.execute("UPDATE events SET at = ? + id", (start,))
            connection.execute("UPDATE skills SET changed_at = ?", (start,))
            connection.execute("UPDATE skill_revisions SET changed_at = ?", (start,))
            connection.execute(
                "UPDATE events SET body = json_set(body, '$.pid', 4711, '$.host', 'workstation')"
                " WHERE kind = 'engine_started'"
            )
        connection.close()

    def close(self, *, release: bool = False) -> None:
        """Ends the engine's side; `release` gives the run up, as an engine does that ends."""
        if release:
            self.store.release()
        else:
            self.store.close()
