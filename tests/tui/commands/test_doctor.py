"""`doctor` tries what judging needs, says what is missing in words, and refuses only where nothing can be judged."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.tui.commands.conftest import Call


def by_name(layers: list[dict[str, str]]) -> dict[str, dict[str, str]]:
    return {layer["name"]: layer for layer in layers}


def test_a_machine_that_can_judge(call: Call, tmp_path: Path) -> None:
    outcome = call("doctor", "--json")
    document = json.loads(outcome.out)
    assert (outcome.code, document["can_judge"]) == (0, True)
    tools = by_name(document["toolchain"])
    assert {"python", "torch", "triton", "compiler", "GPU"} <= set(tools)
    assert "sm_90" in tools["compiler"]["detail"]
    assert {layer["state"] for layer in document["sandbox"]} <= {"good", "missing"}
    location = by_name(document["database"])["location"]
    assert location["state"] == "good"
    assert str(tmp_path / "runs.db") in location["detail"]
    assert not (tmp_path / "runs.db").exists()


def test_layers_that_a_person_left_out_are_named(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELGROVE_SANDBOX", "no-landlock")
    lines = [line.split() for line in call("doctor").out.splitlines()]
    assert ["off", "landlock"] in [line[:2] for line in lines]
    assert any("KERNELGROVE_SANDBOX" in line for line in lines)


def test_an_interpreter_without_torch_exits_with_3(call: Call, tmp_path: Path) -> None:
    bare = tmp_path / "bare" / "bin"
    bare.mkdir(parents=True)
    program = bare / "python"
    program.write_text(f'#!/bin/sh\nexec "{Path(sys.executable).resolve()}" -I -S "$@"\n')
    program.chmod(0o755)
    outcome = call("doctor", "--python", str(program))
    assert outcome.code == 3
    assert "No module named 'torch'" in outcome.out
    assert "cannot judge" in outcome.out


def test_an_absent_interpreter_and_a_wrong_setting_are_said_in_one_sentence(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = call("doctor", "--python", "/no/such/python")
    assert outcome.code == 3
    assert "/no/such/python cannot be started" in outcome.out
    monkeypatch.setenv("KERNELGROVE_SANDBOX", "sometimes")
    refused = call("doctor")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "KERNELGROVE_SANDBOX" in refused.err
