"""Runs candidate modules in processes of their own, many at once, and names structures' neighbours."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.lowering.structure import Structure, describe

WORKER = Path(__file__).parent / "candidate_worker.py"
ROOT = Path(__file__).parents[4]


@dataclass(frozen=True)
class Request:
    """One task in one form, and candidates for it by name."""

    source: str
    modules: Mapping[str, str]
    small: Mapping[str, object]
    arch: str = "sm_90"


def run_worker(mode: str, requests: Sequence[Request]) -> list[dict[str, Any]]:
    """The worker's answers; `mode` is `interpret` or `compile`."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        **({"TRITON_INTERPRET": "1"} if mode == "interpret" else {}),
    }
    text = json.dumps([asdict(request) for request in requests])
    done = subprocess.run([sys.executable, WORKER, mode], input=text, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    assert [answer.keys() for answer in answers] == [request.modules.keys() for request in requests]
    return answers


def with_neighbours(found: Sequence[Structure], count: int) -> dict[str, str]:
    """Every structure with its defaults, and with parameters that local steps may reach."""
    chance = random.Random(0)
    modules: dict[str, str] = {}
    for structure in found:
        modules[structure.name] = structure.render(structure.defaults)
        if not count:
            continue
        made = 0
        for _ in range(40):
            changed = dict(structure.defaults)
            for name in chance.sample(sorted(changed), min(2, len(changed))):
                changed[name] = chance.choice(structure.choices[name])
            try:
                text = structure.render(changed)
            except ValueError as error:
                assert str(error).endswith("."), error
                continue
            modules[f"{structure.name} ({describe(changed)})"] = text
            made += 1
            if made == count:
                break
        assert made, f"{structure.name} refuses nearly all of its own choices"
    return modules
