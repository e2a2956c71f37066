"""What the machine does wrong is never held against a candidate: full disks, broken drivers, cut connections."""

from __future__ import annotations

import errno
import resource
import socket
from dataclasses import replace

import pytest

from engine.judging.evaluator import Evaluator
from engine.judging.facts import MachineError
from engine.judging.settings import JudgeSettings
from engine.judging.workers.faults import fault_of
from engine.records import Verdict
from tests.engine.judging.conftest import SCALE_TASK, make_task, scale_candidate
from tests.engine.judging.test_bad_candidates import in_forward, in_module

pytestmark = pytest.mark.asyncio(loop_scope="module")

TASK = make_task(SCALE_TASK, {"ROWS": 7, "COLUMNS": 50})


@pytest.mark.parametrize(
    "source",
    [
        in_module("raise OSError(28, 'No space left on device')"),
        in_forward("raise OSError(28, 'No space left on device')"),
        in_forward("raise RuntimeError('CUDA error: uncorrectable ECC error encountered')"),
    ],
    ids=["full disk at import", "full disk in a call", "broken memory"],
)
async def test_what_the_machine_says_to_a_candidate_is_the_machines_fault(judge: Evaluator, source: str) -> None:
    evaluation = await judge.evaluate(source)
    assert evaluation.verdict is Verdict.INFRASTRUCTURE_ERROR, evaluation.reason
    assert (await judge.evaluate(scale_candidate())).correct


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "infrastructure_error"),
        (OSError(errno.EIO, "Input/output error"), "infrastructure_error"),
        (RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable"), "infrastructure_error"),
        (RuntimeError("No CUDA-capable device is detected"), "infrastructure_error"),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), "runtime_error"),
        (RuntimeError("CUDA error: device-side assert triggered"), "runtime_error"),
        (OSError(errno.EMFILE, "Too many open files"), "runtime_error"),
        (FileNotFoundError(errno.ENOENT, "No such file"), "runtime_error"),
        (MemoryError(), "out_of_memory"),
    ],
)
async def test_errors_are_the_machines_or_the_candidates(error: Exception, kind: str) -> None:
    assert fault_of(error, "candidate.py")["kind"] == kind


async def test_a_disk_on_which_nothing_can_be_written_is_the_machines_fault(judge: Evaluator) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        evaluation = await judge.evaluate(scale_candidate())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert evaluation.verdict is Verdict.INFRASTRUCTURE_ERROR
    assert evaluation.reason == "the candidate's files cannot be written: File too large"
    assert (await judge.evaluate(scale_candidate())).correct


@pytest.mark.parametrize(
    "worker",
    [
        "judge",
        pytest.param("nursery", marks=pytest.mark.slow),
        pytest.param("compile nursery", marks=pytest.mark.slow),
    ],
)
async def test_a_cut_connection_costs_a_crew_and_no_candidate(cpu_settings: JudgeSettings, worker: str) -> None:
    async with Evaluator(TASK, cpu_settings) as judge:
        first = judge._crew
        assert first is not None
        cut: list[str] = []

        def cut_once(text: str) -> None:
            if not cut:
                cut.append(text)
                channel = next(one for one in first._workers if one.name == worker).channel
                channel._socket.shutdown(socket.SHUT_RDWR)

        waits = in_forward("import time\n        print('here', flush=True)\n        time.sleep(0.1)")
        evaluation = await judge.evaluate(waits, on_log=cut_once)
        assert cut
        assert evaluation.correct, evaluation.reason
        assert judge._crew is not first


async def test_a_device_that_is_not_there_is_said_and_not_held_against_anyone(cpu_settings: JudgeSettings) -> None:
    with pytest.raises(MachineError, match="no device cuda:63"):
        await Evaluator(TASK, replace(cpu_settings, device="cuda:63")).open()
