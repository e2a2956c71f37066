"""What a search costs besides model and device, and how well each policy searches.

Prints, for a tree of ten thousand candidates, how long choosing and preparing an expansion takes, what the engine takes
for one candidate from choice to verdict, and how much the database grows by it, with prompts as a model would get them;
then how the policies do on the landscape that `landscape.py` describes, with 95% intervals over its seeds.

Run: python benchmarks/search.py [--size 10000] [--seeds 50] [--candidates 100]
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from random import Random

from landscape import Kernel, Landscape, Outcome, search

from engine.judging.confirmation import Bar
from engine.loop.picture import Picture
from engine.loop.search_loop import SearchLoop
from engine.proposing.briefing import Subject
from engine.proposing.findings import Findings
from engine.proposing.proposer import ProposalRequest, Proposed
from engine.records import (
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
    Usage,
    Verdict,
)
from engine.search.choice import generator
from engine.search.context import choose_context
from engine.search.policies import find_policy
from engine.settings import PAPER_POLICY, PolicySettings, RunSettings
from engine.store import evaluations, proposals
from engine.store.control import Control
from engine.store.database import transaction
from engine.store.ledger import CallOrder
from engine.store.reader import Reader
from engine.store.run_store import RunStore
from engine.tasks.catalogue import entry_point, find_task

TASK = "softmax"
STEPS = 200
"""How many expansions are timed on the large tree."""

_FACTS = {
    "kind": "measured",
    "toolchain": {"arch": "sm_90"},
    "cases": [],
    "baselines": {"eager": 500.0, "bound": 200.0},
}


# A kernel's text and verdict, as large as real ones


def source_of(number: int, kernel: Kernel) -> str:
    """A module of about 5 KB that differs from others as kernels of one search do."""
    names = [f"value_{kernel.family}_{index}" for index in range(24)]
    body = "\n".join(
        f"    {name} = tl.load(x_ptr + row * stride + offsets + {index * 128}, mask=mask, other=0.0)\n"
        f"    total += tl.sum({name} * tl.exp({name} - largest), axis=0)"
        for index, name in enumerate(names)
    )
    return (
        f'"""Kernel {number}: structure {kernel.family}."""\n\nimport torch\nimport triton\n'
        "import triton.language as tl\n\n\n"
        f"@triton.jit\ndef kernel_{kernel.family}(x_ptr, y_ptr, stride, columns, BLOCK: tl.constexpr):\n"
        "    row = tl.program_id(0)\n    offsets = tl.arange(0, BLOCK)\n    mask = offsets < columns\n"
        f"    largest = 0.0\n    total = 0.0\n{body}\n    tl.store(y_ptr + row, total)\n\n\n"
        "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        y = torch.empty_like(x)\n"
        f"        kernel_{kernel.family}[(x.shape[0],)](x, y, x.stride(0), x.shape[1], BLOCK={2 ** (7 + number % 5)},"
        f" num_warps={kernel.setting[0] + 1})\n        return y\n"
    )


def evaluation_of(number: int, kernel: Kernel, speedup: float) -> Evaluation:
    """A verdict with checks, resources and a log, as large as real ones."""
    if kernel.verdict is not Verdict.CORRECT:
        log = "\n".join(f"at {line}:4: expected a tensor of shape [{line}, 128]" for line in range(20))
        return Evaluation(kernel.verdict, "compile", f"candidate {number} does not work", log=log, seconds=3.0)
    time_us = 500.0 / speedup
    measured = Measurement(
        MeasurementKind.MEASURED, time_us, (time_us * 0.99, time_us * 1.01),
        detail={"rounds": [{"candidate": time_us + index, "eager": 500.0 - index} for index in range(12)]},
    )  # fmt: skip
    return Evaluation(
        Verdict.CORRECT, "time", "",
        numerics=Numerics("exact", 1.8e-7, 3e-6, 1.1e-7, True, True),
        checks=tuple(Check(f"check_{index}", True, "as it should be") for index in range(24)),
        cases=(CaseResult("default", 1.0, Verdict.CORRECT, measured, {"eager": 500.0, "compile": 300.0}, 200.0),),
        time_us=time_us, speedup={"eager": speedup, "compile": 300.0 / time_us}, bound_fraction=200.0 / time_us,
        static=(KernelResources("kernel", "sm_90", 64, 0, 16384),), fingerprint=f"code {number}",
        device="a device", toolchain={"torch": "2.13.0", "triton": "3.7.1"}, seconds=20.0,
    )  # fmt: skip


# The large tree


class Grower:
    """Grows a run by the policy, with kernels from the landscape."""

    def __init__(self, store: RunStore, settings: RunSettings) -> None:
        self.store = store
        self.settings = settings
        self.landscape = Landscape(0)
        self.kernels: dict[int, Kernel] = {}

    def kernel(self, request: ProposalRequest) -> Kernel:
        """Makes the kernel of a candidate."""
        random = Random(f"kernel {request.number}")
        if request.step is Step.LOCAL and request.parent is not None:
            made = self.landscape.edit(self.kernels[request.parent], random)
        else:
            made = self.landscape.new([self.kernels[number] for number in request.context], random)
        self.kernels[request.number] = made
        return made

    def plant(self, size: int) -> None:
        """Fills the run at once, in one transaction."""
        snapshot = Picture(self.store, self.settings).snapshot
        policy = find_policy(self.settings.policy.name)
        run, db = self.store.run_id, self.store._db
        with transaction(db) as connection:
            for number in range(1, size + 1):
                choice = policy(snapshot, self.settings.policy, generator(0, number))
                assert choice is not None
                parent = choice.parent or None
                proposals.add(connection, run, parent, choice.step, ProposerKind.LLM, dict(choice.why))
                kernel = self.kernel(ProposalRequest(number, parent, choice.step, Random(0)))
                proposals.take_answer(
                    connection, run, number, source_of(number, kernel), f"idea {number}", None,
                    gated=False, tried=(), novelty=0.5, structure=None,
                )  # fmt: skip
                evaluations.claim(connection, run, self.store.epoch, number)
                speedup = self.landscape.speedup(kernel)
                reward = (0.4 + 0.3 * speedup) if kernel.verdict is Verdict.CORRECT else 0.0
                evaluations.keep_verdict(
                    connection, run, number, evaluation_of(number, kernel, speedup), speedup, reward
                )
                snapshot = snapshot.after(self.store.some_candidates([number]), asked=number)


class BriefedProposer:
    """Composes the prompts that a model would get and keeps them with an answer, but asks nobody."""

    kind = ProposerKind.LLM

    def __init__(self, grower: Grower, findings: Findings) -> None:
        self._grower = grower
        self._findings = findings
        self.seconds = 0.0

    def exhausted(self, parent: int | None, step: Step) -> str | None:
        """Never."""
        return None

    async def propose(self, request: ProposalRequest) -> Proposed:
        """Makes the next kernel, and its prompts as if a model had been asked."""
        started = time.perf_counter()
        kernel = self._grower.kernel(request)
        text = source_of(request.number, kernel)
        if request.step is Step.LOCAL:
            briefing, names = self._findings.local(request)[0], ["reviser", "tuner"]
        else:
            briefing, names = self._findings.structural(request), ["structural"]
        for name in names:
            prompt, skills = briefing.prompt(name, 24_000)
            order = CallOrder(
                request.number, "a model", "nowhere", prompt.template, prompt.version, 1, prompt.messages, skills,
                prompt.dropped, 0.01,
            )  # fmt: skip
            call = self._grower.store.ledger.begin(order)
            answer = (
                f"IDEA: idea {request.number}\n\n```python\n{text}```\n" if name != "reviser" else "1. fewer warps\n"
            )
            self._grower.store.ledger.settle(call, answer, Usage(prompt.tokens, 2000), 0.005)
        self.seconds += time.perf_counter() - started
        return Proposed(text, f"idea {request.number}")


class InstantJudge:
    """Judges at once."""

    def __init__(self, grower: Grower) -> None:
        self._grower = grower

    async def evaluate(
        self, source: str, *, known: Collection[str], bar: Bar, on_waiting: Callable[[str], None]
    ) -> Evaluation:
        """The verdict that the landscape gives."""
        number = int(source.split("Kernel ", 1)[1].split(":", 1)[0])
        kernel = self._grower.kernels[number]
        return evaluation_of(number, kernel, self._grower.landscape.speedup(kernel))


def large_tree(size: int, folder: Path) -> None:
    """Prints the figures of choosing, of the engine, and of the database."""
    db = folder / "runs.db"
    settings = RunSettings(budget=size + STEPS)
    task = find_task(TASK)
    with Control(db) as control:
        run = control.create_run(task, settings)
    store = RunStore.take(db, run)
    store.set_state(RunState.RUNNING)
    store.task_opened("a device", "measured", _FACTS, {})
    grower = Grower(store, settings)
    grower.plant(size)
    started = time.perf_counter()
    picture = Picture(store, settings)
    print(f"reading {size:,} candidates at the start     {time.perf_counter() - started:8.2f} s")
    print(f"choosing and preparing an expansion      {_choosing(picture, store, settings):8.2f} ms median")
    before = _size(store)
    passed, proposing, steps = asyncio.run(_engine(store, grower, settings, task))
    print(f"engine, one candidate                    {(passed - proposing) / steps * 1e3:8.2f} ms, "
          f"and {proposing / steps * 1e3:.2f} ms for composing and keeping its prompts")  # fmt: skip
    print(f"database, one candidate with prompts     {(_size(store) - before) / steps / 1024:8.2f} KiB")
    store.release()


def _choosing(picture: Picture, store: RunStore, settings: RunSettings) -> float:
    """The time from a change in the tree to a choice with its context, in ms; the median of many."""
    policy = find_policy(settings.policy.name)
    passed = []
    evaluated = [number for number, node in picture.snapshot.nodes.items() if not node.open]
    for index in range(STEPS):
        store.note("a change", candidate=evaluated[-1 - index % 50])
        started = time.perf_counter()
        picture.refresh()
        choice = policy(picture.snapshot, settings.policy, generator(0, 10**6 + index))
        assert choice is not None
        choose_context(picture.snapshot, choice.parent, choice.step, settings.policy.context_pool, Random(index))
        passed.append(time.perf_counter() - started)
    return statistics.median(passed) * 1e3


async def _engine(store: RunStore, grower: Grower, settings: RunSettings, task: Task) -> tuple[float, float, int]:
    """Runs the loop to the end of the budget; returns seconds in all, seconds of proposing, and candidates."""
    before = len(grower.kernels)
    with Reader(store.path) as reader:
        subject = Subject(task, entry_point(task), "a device", _FACTS, settings)
        proposer = BriefedProposer(grower, Findings(reader, store.run_id, subject))
        loop = SearchLoop(store, [InstantJudge(grower)], proposer, settings)
        started = time.perf_counter()
        await loop.run()
        passed = time.perf_counter() - started
    return passed, proposer.seconds, len(grower.kernels) - before


def _size(store: RunStore) -> int:
    connection = sqlite3.connect(store.path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (page,) = connection.execute("PRAGMA page_size").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    connection.close()
    return int((pages - free) * page)


# The landscape


def landscape(seeds: int, candidates: int) -> None:
    """Prints how the policies do, each against the default one, seed by seed."""
    lands = [Landscape(seed) for seed in range(seeds)]

    def outcomes(settings: PolicySettings, devices: int = 1) -> list[Outcome]:
        return [search(land, settings, seed, candidates, devices) for seed, land in enumerate(lands)]

    ours = PolicySettings()
    default = outcomes(ours)
    rows = {
        "adaexplore": default,
        "adaexplore, paper exact": outcomes(PAPER_POLICY),
        "adaexplore, paper's reward": outcomes(replace_settings(ours, reward="paper")),
        "parallel_sampling": outcomes(PolicySettings(name="parallel_sampling")),
        "iterative_refinement": outcomes(PolicySettings(name="iterative_refinement")),
        "large_only, mixed": outcomes(PolicySettings(name="large_only")),
        "beam": outcomes(PolicySettings(name="beam")),
        "evolution": outcomes(PolicySettings(name="evolution")),
    }
    print(f"\nlandscape, {seeds} seeds, {candidates} candidates; speedup against eager, geometric means, 95% intervals")
    print(f"{'policy':<28}{'best so far':>24}{'final best':>24}{'adaexplore, final':>24}")
    for name, found in rows.items():
        areas = [outcome.area for outcome in found]
        finals = [math.log(outcome.final) for outcome in found]
        gains = [math.log(one.final / other.final) for one, other in zip(default, found, strict=True)]
        gain = _interval(gains) if found is not default else ""
        print(f"{name:<28}{_interval(areas):>24}{_interval(finals):>24}{gain:>24}")
    two = outcomes(ours, devices=2)
    faster = [math.log(one.seconds / other.seconds) for one, other in zip(default, two, strict=True)]
    worse = [math.log(other.final / one.final) for one, other in zip(default, two, strict=True)]
    so_far = _interval([outcome.area for outcome in two])
    print(f"two devices against one, equal proposals: {_interval(faster)} times as fast, best so far {so_far},")
    print(f"final best {_interval(worse)} of one device's")


def replace_settings(settings: PolicySettings, **changes: object) -> PolicySettings:
    """The settings with some changed."""
    return PolicySettings.model_validate({**settings.model_dump(), **changes})


def _interval(logs: Sequence[float]) -> str:
    """The geometric mean of what is given as logarithms, with its 95% interval by the bootstrap."""
    random = Random(0)
    means = sorted(statistics.fmean(random.choices(logs, k=len(logs))) for _ in range(2000))
    low, middle, high = (math.exp(value) for value in (means[50], statistics.fmean(logs), means[1949]))
    return f"{middle:.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=10_000, help="candidates of the large tree")
    parser.add_argument("--seeds", type=int, default=50, help="seeds of the landscape")
    parser.add_argument("--candidates", type=int, default=100, help="candidates of a search on the landscape")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        large_tree(options.size, Path(folder))
    landscape(options.seeds, options.candidates)


if __name__ == "__main__":
    main()
