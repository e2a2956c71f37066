"""Whatever a candidate does becomes one verdict in one line, and the next candidate is untouched."""

from __future__ import annotations

import os

import pytest

from engine.judging.evaluator import Evaluator
from engine.records import Evaluation, Verdict
from tests.engine.judging.conftest import children_of, scale_candidate

pytestmark = pytest.mark.asyncio(loop_scope="module")

FORWARD = "        y = torch.empty_like(x)\n"
"""Where a test puts a line at the start of the candidate's forward."""

IMPORTS = "from torch import nn\n"
"""Where a test puts a line at the top of the candidate's module."""


async def verdict_on(judge: Evaluator, source: str) -> Evaluation:
    """Judges a bad candidate, then an honest one, which must not notice."""
    bad = await judge.evaluate(source)
    assert "\n" not in bad.reason
    good = await judge.evaluate(scale_candidate())
    assert good.verdict is Verdict.CORRECT, good
    return bad


def in_forward(line: str) -> str:
    return scale_candidate((FORWARD, f"        {line}\n{FORWARD}"))


def in_module(line: str) -> str:
    return scale_candidate((IMPORTS, f"{IMPORTS}{line}\n"))


async def test_an_honest_candidate_is_correct_and_exact(judge: Evaluator) -> None:
    evaluation = await judge.evaluate(scale_candidate())
    assert (evaluation.verdict, evaluation.reason, evaluation.labels) == (Verdict.CORRECT, "", ())
    assert evaluation.numerics is not None
    assert evaluation.numerics.tier == "exact"
    assert evaluation.numerics.official_gate and evaluation.numerics.paper_gate


@pytest.mark.parametrize(
    ("source", "verdict", "stage", "reason"),
    [
        ("x = 1", Verdict.COMPILE_ERROR, "load", "defines no class ModelNew"),
        ("def f(:", Verdict.COMPILE_ERROR, "load", "SyntaxError: invalid syntax (line 1)"),
        ("ModelNew = 3", Verdict.COMPILE_ERROR, "load", "no subclass of torch.nn.Module"),
        ("import missing_module_xyz", Verdict.RUNTIME_ERROR, "load", "No module named 'missing_module_xyz' (line 1)"),
        ("\0", Verdict.COMPILE_ERROR, "load", "null bytes"),
        ("", Verdict.COMPILE_ERROR, "load", "defines no class ModelNew"),
        (in_module("import sys; sys.exit(3)"), Verdict.RUNTIME_ERROR, "load", "sys.exit(3)"),
        (in_module("import os; os._exit(0)"), Verdict.RUNTIME_ERROR, "load", "exit code 0 while it was loaded"),
        (in_forward("import os; os._exit(7)"), Verdict.RUNTIME_ERROR, "compile", "exit code 7"),
        (in_module("import ctypes; ctypes.string_at(0)"), Verdict.RUNTIME_ERROR, "load", "segmentation fault"),
        (in_forward("raise ValueError('bad')"), Verdict.RUNTIME_ERROR, "compile", "ValueError: bad (line 25)"),
        (
            in_forward("return torch.zeros(3)"),
            Verdict.INCORRECT,
            "correct",
            "shape [3] where the reference has [7, 50]",
        ),
        (
            in_forward("return x.double()"),
            Verdict.INCORRECT,
            "correct",
            "dtype float64 where the reference has float32",
        ),
        (
            in_forward("return [x, x]"),
            Verdict.INCORRECT,
            "correct",
            "[tensor, tensor] where the reference returns tensor",
        ),
        (in_forward("return 3"), Verdict.INCORRECT, "correct", "returns int where the reference returns tensor"),
        (in_forward("return {1}"), Verdict.INCORRECT, "compile", "a value of type set"),
        (in_forward("return x"), Verdict.INCORRECT, "correct", "wrong values for secret inputs 1"),
        (in_forward("return x * float('nan')"), Verdict.INCORRECT, "correct", "350 values are NaN or infinite"),
        (in_forward("x.mul_(2); x.div_(2); x.add_(1)"), Verdict.INCORRECT, "correct", "changes input 0 in place"),
        (in_forward("torch.empty(1 << 42)"), Verdict.OUT_OF_MEMORY, "compile", "allocate memory"),
        (in_forward("bytearray(1 << 40)"), Verdict.OUT_OF_MEMORY, "compile", "MemoryError"),
        (in_forward("[torch.empty(1 << 28) for _ in range(40)]"), Verdict.OUT_OF_MEMORY, "compile", "memory"),
        (in_forward("import os; os.kill(os.getpid(), 11)"), Verdict.RUNTIME_ERROR, "compile", "segmentation fault"),
        (
            scale_candidate(("self, factor, columns", "self, factor")),
            Verdict.RUNTIME_ERROR,
            "load",
            "cannot be constructed with Model's arguments",
        ),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) and "\n" not in value else "",
)
async def test_bad_input_gets_its_verdict_in_one_line(
    judge: Evaluator, source: str, verdict: Verdict, stage: str, reason: str
) -> None:
    evaluation = await verdict_on(judge, source)
    assert (evaluation.verdict, evaluation.stage) == (verdict, stage), evaluation.reason
    assert reason in evaluation.reason


async def test_a_message_with_lines_and_markup_becomes_one_line(judge: Evaluator) -> None:
    evaluation = await verdict_on(judge, in_forward("raise ValueError('[bold]a\\nb\\x1b[31m\\r' + 'x' * 5000)"))
    assert evaluation.reason.startswith("ValueError: [bold]a b [31m xxx")
    assert len(evaluation.reason) < 500
    assert evaluation.reason.isprintable()


async def test_a_gigabyte_printed_is_dropped_and_no_fault(judge: Evaluator) -> None:
    source = in_module("import sys\nfor _ in range(1024): sys.stdout.write('x' * (1 << 20))")
    evaluation = await verdict_on(judge, source)
    assert evaluation.verdict is Verdict.CORRECT
    assert len(evaluation.log) < 70_000
    assert "more bytes were dropped" in evaluation.log


async def test_what_is_printed_arrives_as_it_comes(judge: Evaluator) -> None:
    heard: list[str] = []
    evaluation = await judge.evaluate(in_module("print('from the module')"), on_log=heard.append)
    assert "from the module" in "".join(heard)
    assert evaluation.log == "".join(heard)


async def test_a_forked_child_that_stays_behind_is_ended(judge: Evaluator) -> None:
    crew = judge._crew
    assert crew is not None
    daemon = (
        "import os, signal, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        signal.pause()\n"
        "    os._exit(0)\n"
    )
    evaluation = await verdict_on(judge, in_module(daemon))
    assert evaluation.verdict is Verdict.CORRECT
    nursery = next(worker for worker in crew._workers if worker.name == "nursery")
    assert children_of(nursery.process.pid) == []


async def test_no_key_and_no_task_source_is_within_a_candidates_reach(
    judge: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = "import os, sys; print(sorted(os.environ), os.getcwd(), os.listdir('/proc/self/fd'), sys.argv)"
    evaluation = await judge.evaluate(in_module(looks))
    assert "OPENAI" not in evaluation.log
    assert str(os.environ.get("HOME")) not in evaluation.log.split("[")[1]
    # Standard streams, the channel to the judge, and the folder that lists them.
    assert len(evaluation.log.partition("['0'")[2].split("]")[0].split(",")) <= 6
