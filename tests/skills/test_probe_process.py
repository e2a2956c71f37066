"""Probes in a real process with the real Triton: whatever one does, the others get their answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from skills.errors import ProbeUnavailable
from skills.probe_process import SCRIPT, SubprocessProbeRunner
from skills.probes import ProbeOutcome

HEAD = "import triton\nimport triton.language as tl\n"
KERNEL = "@triton.jit\ndef kernel(x):\n    tl.store(x, 1.0)\n"
DESCRIPTION = 'SIGNATURE = {"x": "*fp32"}\nCONSTEXPRS = {}\n'
GOOD = HEAD + KERNEL + DESCRIPTION

needs_triton = pytest.mark.skipif(sys.platform != "linux", reason="Triton runs on Linux only")


@pytest.fixture(scope="module")
def outcomes() -> dict[str, ProbeOutcome]:
    """Every kind of probe, compiled in one go; each troublemaker stands before a good one."""
    sources = {
        "good": GOOD,
        "syntax error": "def (:",
        "exit": "import sys\nsys.exit(0)\n" + GOOD,
        "hard exit": "import os\nos._exit(7)\n" + GOOD,
        "segfault": "import ctypes\nctypes.string_at(0)\n" + GOOD,
        "noisy": "import os\nprint('x' * 100_000)\nos.write(1, b'{}\\n' * 100)\nos.write(2, b'y' * 100_000)\n" + GOOD,
        "no kernel": HEAD + DESCRIPTION,
        "two kernels": HEAD + KERNEL + KERNEL.replace("kernel", "other") + DESCRIPTION,
        "named kernel": HEAD + KERNEL + KERNEL.replace("kernel", "other") + DESCRIPTION + 'KERNEL = "other"\n',
        "autotuned": HEAD + "@triton.autotune(configs=[triton.Config({})], key=[])\n" + KERNEL + DESCRIPTION,
        "wrong signature": HEAD + KERNEL + DESCRIPTION.replace('"x"', '"y"'),
        "no constexpr": HEAD
        + KERNEL.replace("(x)", "(x, B: tl.constexpr)")
        + 'SIGNATURE = {"x": "*fp32", "B": "constexpr"}\n',
        "options": GOOD + 'OPTIONS = {"num_warps": 3}\n',
        "hidden cause": HEAD + KERNEL.replace("1.0", "tl.sigmoid(tl.load(x))") + DESCRIPTION.replace("fp32", "fp16"),
        "unicode": "# ünïcödé 漢字\n" + GOOD,
        "last": GOOD,
    }
    runner = SubprocessProbeRunner(timeout_s=60.0)
    return dict(zip(sources, runner.compile(list(sources.values())), strict=True))


@needs_triton
@pytest.mark.parametrize("name", ["good", "noisy", "named kernel", "autotuned", "unicode", "last"])
def test_a_sound_probe_compiles_whatever_happened_before_it(outcomes: dict[str, ProbeOutcome], name: str) -> None:
    assert outcomes[name].ok, outcomes[name].message


@needs_triton
@pytest.mark.parametrize(
    ("name", "stage", "message"),
    [
        ("syntax error", "load", "SyntaxError"),
        ("exit", "load", "SystemExit"),
        ("hard exit", "crash", "exit code 7"),
        ("segfault", "crash", "signal 11"),
        ("no kernel", "load", "found: none"),
        ("two kernels", "load", "found: kernel, other"),
        ("wrong signature", "load", "SIGNATURE must name the parameters x in this order"),
        ("no constexpr", "load", "CONSTEXPRS must give values to exactly these: B"),
        ("options", "compile", "num_warps must be a power of 2"),
        ("hidden cause", "compile", "Expected dtype ['fp32', 'fp64'] but got fp16"),
    ],
)
def test_a_failing_probe_says_how_far_it_came_and_why(
    outcomes: dict[str, ProbeOutcome], name: str, stage: str, message: str
) -> None:
    outcome = outcomes[name]
    assert not outcome.ok
    assert outcome.stage == stage, outcome.message
    assert message in outcome.message


@needs_triton
def test_an_endless_probe_is_killed_and_the_next_one_gets_its_turn() -> None:
    endless = "while True:\n    pass\n"
    first, second = SubprocessProbeRunner(timeout_s=1.0).compile([endless, endless])
    assert (first.stage, second.stage) == ("timeout", "timeout")
    assert first.message == "not compiled after 1 s"


@needs_triton
def test_settings_that_change_what_triton_accepts_and_secrets_stay_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    curious = "import os\nassert 'OPENAI_API_KEY' not in os.environ\n" + GOOD
    (outcome,) = SubprocessProbeRunner().compile([curious])
    assert outcome.ok, outcome.message


@needs_triton
def test_the_toolchain_names_version_and_architecture() -> None:
    import importlib.metadata

    version = importlib.metadata.version("triton")
    assert SubprocessProbeRunner(arch="sm_80").toolchain() == f"triton {version}, sm_80"


@needs_triton
@pytest.mark.parametrize("arch", ["gfx942", "sm_", "90"])
def test_an_architecture_that_is_none_of_nvidias_is_refused(arch: str) -> None:
    with pytest.raises(ProbeUnavailable, match=f"the architecture '{arch}' is none of NVIDIA's"):
        SubprocessProbeRunner(arch=arch).toolchain()


def test_an_interpreter_that_is_not_there_or_has_no_triton_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ProbeUnavailable, match="/gone/python cannot be started: No such file"):
        SubprocessProbeRunner(python="/gone/python").toolchain()
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(ProbeUnavailable, match="No module named 'triton'"):
        SubprocessProbeRunner(python=str(bare)).toolchain()


def test_a_process_that_dies_is_reported_with_its_last_words(tmp_path: Path) -> None:
    dying = tmp_path / "python"
    dying.write_text("#!/bin/sh\necho first >&2\necho last words >&2\nexit 9\n")
    dying.chmod(0o755)
    with pytest.raises(ProbeUnavailable, match="ended with code 9: last words"):
        SubprocessProbeRunner(python=str(dying)).toolchain()


@needs_triton
def test_no_process_outlives_an_asker_that_stops_listening(tmp_path: Path) -> None:
    """The endless probe tells its process id and holds a pipe; the pipe closes when it is gone."""
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    endless = f"held = open({str(fifo)!r}, 'w')\nheld.write('here')\nheld.flush()\nwhile True:\n    pass\n"
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), "--watch-stdin"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    request = {"arch": "sm_90", "timeout_s": 200.0, "sources": [endless]}
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.flush()
    with open(fifo) as alive:
        assert alive.read(4) == "here"
        process.stdin.close()
        assert alive.read() == ""
    assert process.wait(timeout=10) == 3


@needs_triton
def test_the_script_alone_answers_a_file_on_standard_input() -> None:
    request = json.dumps({"arch": "sm_90", "timeout_s": 60.0, "sources": [GOOD]})
    done = subprocess.run([sys.executable, str(SCRIPT)], input=request, capture_output=True, text=True, check=True)
    header, outcome = map(json.loads, done.stdout.splitlines())
    assert header["arch"] == "sm_90"
    assert outcome["ok"]
