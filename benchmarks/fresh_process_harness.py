"""A plain harness to compare the judge with: a fresh interpreter for each candidate, one process for everything.

Builds inputs on the CPU, runs the reference for every candidate, compares at a tolerance, and times both
one after the other with device events. Usage: python benchmarks/fresh_process_harness.py TASK.py CANDIDATE.py
CALLS. Prints one line of JSON: what it found, and the median microseconds of both.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

TRIALS = 5
TOLERANCE = 1e-2
FLUSH_BYTES = 256 << 20


def load(path: str, name: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def median_us(call: Callable[[], Any], calls: int, flush: torch.Tensor) -> float:
    event: Any = torch.cuda.Event
    times = []
    for _ in range(calls):
        flush.zero_()
        before, after = event(enable_timing=True), event(enable_timing=True)
        before.record()
        call()
        after.record()
        torch.cuda.synchronize()
        times.append(float(before.elapsed_time(after)) * 1e3)
    return statistics.median(times)


def judge(task_path: str, candidate_path: str, calls: int) -> dict[str, Any]:
    task = load(task_path, "task")
    candidate = load(candidate_path, "candidate")
    init = task.get_init_inputs()
    torch.manual_seed(0)
    model = task.Model(*init).cuda()
    torch.manual_seed(0)
    new = candidate.ModelNew(*init).cuda()
    new.load_state_dict(model.state_dict(), strict=False)
    with torch.no_grad():
        for seed in range(TRIALS):
            torch.manual_seed(seed)
            inputs = [value.cuda() if isinstance(value, torch.Tensor) else value for value in task.get_inputs()]
            if not torch.allclose(model(*inputs), new(*inputs), rtol=TOLERANCE, atol=TOLERANCE):
                return {"verdict": "incorrect"}
        flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
        theirs, mine = (median_us(lambda one=one: one(*inputs), calls, flush) for one in (model, new))  # type: ignore[misc]
    return {"verdict": "correct", "reference_us": theirs, "time_us": mine}


def main() -> None:
    task, candidate, calls = sys.argv[1:4]
    try:
        found = judge(task, candidate, int(calls))
    except Exception as error:
        found = {"verdict": "error", "reason": f"{type(error).__name__}: {str(error)[:200]}"}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
