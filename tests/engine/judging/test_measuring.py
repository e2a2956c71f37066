"""The parts of measuring that need no GPU: statistics, and one device shared by many."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from engine.judging.processes import clean_environment
from engine.judging.statistics import geometric_mean, interval_95, median
from engine.judging.wire import Channel
from engine.judging.workers.answerer import Answerer, Fault
from engine.judging.workers.conditions import at_most
from engine.judging.workers.device_lock import DeviceLock
from engine.judging.workers.turns import COMPILING, TUNING, Turns


def test_means_and_intervals() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0, 2.0, 3.0]) == 2.5
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    low, high = interval_95([10.0, 10.1, 9.9])
    assert low < 10.0 < high
    assert (low, high) == pytest.approx((9.752, 10.251), abs=0.01)
    assert interval_95([5.0]) == pytest.approx((5.0, 5.0))


def ignore(what: str) -> None:
    """Nobody wants to know."""


def test_a_timing_run_keeps_another_process_waiting(tmp_path: Path) -> None:
    lock = DeviceLock("GPU-1/../x", tmp_path)
    code = (
        "import sys; from pathlib import Path\n"
        "from engine.judging.workers.device_lock import DeviceLock\n"
        "with DeviceLock('GPU-1/../x', Path(sys.argv[1])).exclusive(lambda what: print(repr(what), flush=True)):\n"
        "    print('held', flush=True)\n"
    )
    with lock.exclusive(ignore):
        other = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None
        assert other.stdout.readline() == "'another search on this machine'\n"
    assert other.stdout.read() == "''\nheld\n"
    assert other.wait() == 0
    assert [path.name for path in tmp_path.iterdir()] == ["kernelgrove-GPU-1x.lock"]


def test_checks_share_the_device_and_cannot_keep_a_timing_run_out(tmp_path: Path) -> None:
    lock = DeviceLock("GPU-2", tmp_path)
    order: list[str] = []
    wants, timed = threading.Event(), threading.Event()

    def time_something() -> None:
        with lock.exclusive(lambda what: wants.set() if what else None):
            order.append("timed")
        timed.set()

    def check_something() -> None:
        with lock.shared(ignore):
            order.append("late check")

    with lock.shared(ignore), lock.shared(ignore):
        timing = threading.Thread(target=time_something)
        timing.start()
        assert wants.wait(10)
        late = threading.Thread(target=check_something)
        late.start()
        order.append("checks end")
    assert timed.wait(10)
    late.join()
    timing.join()
    assert order == ["checks end", "timed", "late check"]


def test_the_device_is_free_while_a_candidate_compiles_and_waited_for_afterwards(tmp_path: Path) -> None:
    lock = DeviceLock("GPU-4", tmp_path)
    ours, theirs = socket.socketpair()
    order: list[str] = []
    compiles, timing = threading.Event(), threading.Event()

    def candidate() -> None:
        channel = Channel(theirs)
        question, _ = channel.receive()
        channel.send({"event": "compiling", "nonce": question["nonce"]})
        channel.receive()
        compiles.set()
        assert timing.wait(10)
        channel.send({"event": "done", "nonce": question["nonce"]})
        channel.receive()
        order.append("goes on")
        channel.send({"ok": {}, "nonce": question["nonce"]})

    def time_another() -> None:
        assert compiles.wait(10)
        with lock.exclusive(ignore):
            timing.set()
            assert waits.wait(10)
            order.append("timed")

    waits = threading.Event()
    threads = [threading.Thread(target=work) for work in (candidate, time_another)]
    for thread in threads:
        thread.start()
    answerer = Answerer(Channel(ours))
    with lock.shared_by_turns(answerer, lambda begins: waits.set() if begins else None):
        answerer.ask({"op": "run"})
    for thread in threads:
        thread.join(10)
    assert order == ["timed", "goes on"]


def test_an_answer_that_comes_in_place_of_a_compiled_kernel_is_an_answer(tmp_path: Path) -> None:
    lock = DeviceLock("GPU-5", tmp_path)
    ours, theirs = socket.socketpair()

    def candidate() -> None:
        channel = Channel(theirs)
        question, _ = channel.receive()
        channel.send({"event": "compiling", "nonce": question["nonce"]})
        channel.receive()
        failed = {"kind": "compile_error", "message": "no such thing", "detail": ""}
        channel.send({"failed": failed, "nonce": question["nonce"]})

    thread = threading.Thread(target=candidate)
    thread.start()
    answerer = Answerer(Channel(ours))
    with lock.shared_by_turns(answerer, ignore), pytest.raises(Fault, match="no such thing"):
        answerer.ask({"op": "run"})
    thread.join(10)


def test_a_candidate_tunes_alone_and_its_limit_waits_for_it(tmp_path: Path) -> None:
    lock = DeviceLock("GPU-6", tmp_path)
    ours, theirs = socket.socketpair()
    answers: list[dict[str, Any]] = []

    def judge() -> None:
        answerer = Answerer(Channel(ours))
        with lock.shared_by_turns(answerer, ignore):
            answers.append(answerer.ask({"op": "run"}))

    def is_free() -> bool:
        with open(tmp_path / "kernelgrove-GPU-6.lock") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    thread = threading.Thread(target=judge)
    thread.start()
    channel = Channel(theirs)
    turns = Turns(channel)
    question, _ = channel.receive()
    turns.answering(question["nonce"])
    with at_most(30.0):
        with turns.taken(TUNING):
            assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
            assert not is_free()
            assert not turns.begin(COMPILING)
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 30.0
        assert is_free()
    turns.answering("")
    assert not turns.begin(COMPILING)
    channel.send({"ok": {"form": None}, "nonce": question["nonce"]})
    thread.join(10)
    assert answers == [{"form": None}]


def test_a_lock_that_another_user_made_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "kernelgrove-GPU-3.lock"
    path.touch()
    os.chmod(path, 0o444)
    with DeviceLock("GPU-3", tmp_path).exclusive(ignore):
        assert path.exists()


def test_the_gpu_that_is_asked_for_becomes_the_only_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert clean_environment(tmp_path, "cuda:1", single_threaded=False)["CUDA_VISIBLE_DEVICES"] == "1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, GPU-abc")
    environment = clean_environment(tmp_path, "cuda:1", single_threaded=True)
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-abc"
    assert clean_environment(tmp_path, "auto", single_threaded=True)["CUDA_VISIBLE_DEVICES"] == "4, GPU-abc"
    assert environment["OPENBLAS_NUM_THREADS"] == "1"
    assert environment["HOME"] == str(tmp_path)
    assert not {"OPENAI_API_KEY", "TRITON_INTERPRET"} & environment.keys()
