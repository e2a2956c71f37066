"""Times every structure of the templates at the large form of the built-in tasks on this machine's GPU.

    python -m benchmarks.templates_on_gpu [--sweep N] [--arch sm_90] [TASK ...]

Prints, for each structure with its default parameters (and the best of N random other choices), its difference
from the eager reference, its time, and the ratio to eager and to torch.compile. A quick look with CUDA
events and a flushed cache, meant for choosing defaults; the judge is what counts.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import tempfile
import types
from pathlib import Path
from typing import Any

import torch

from engine.lowering.structure import describe
from engine.lowering.templates import structures

BUILTIN = Path(__file__).parents[1] / "engine" / "tasks" / "builtin"


def load(text: str, folder: Path, name: str) -> types.ModuleType:
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def time_us(call: Any, repeats: int = 30) -> float:
    event: Any = torch.cuda.Event
    flush = torch.empty(256 * 1024 * 1024, dtype=torch.int8, device="cuda")
    for _ in range(3):
        call()
    times: list[float] = []
    for _ in range(repeats):
        flush.zero_()
        start, end = event(enable_timing=True), event(enable_timing=True)
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1000)
    return sorted(times)[len(times) // 2]


def error_of(found: Any, expected: Any) -> float:
    pairs = zip(flat(found), flat(expected), strict=True)
    return max(float((a.double() - b.double()).norm() / b.double().norm()) for a, b in pairs)


def flat(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)


def run(task: str, arch: str, sweep: int, folder: Path) -> None:
    source = (BUILTIN / f"{task}.py").read_text()
    module = load(source, folder, f"task_{task}")
    torch.manual_seed(0)
    reference = module.Model(*module.get_init_inputs()).cuda()
    inputs = [tensor.cuda() for tensor in module.get_inputs()]
    with torch.no_grad():
        expected = reference(*inputs)
        eager = time_us(lambda: reference(*inputs))
        fused: Any = torch.compile(reference)
        compiled = time_us(lambda: fused(*inputs))
        print(f"\n{task}: eager {eager:.0f} us, torch.compile {compiled:.0f} us")
        chance = random.Random(0)
        found, _ = structures(source, {}, arch)
        for number, structure in enumerate(found):
            tried: list[tuple[float, str, float]] = []
            for trial in range(1 + sweep):
                chosen = dict(structure.defaults)
                for name in chance.sample(sorted(chosen), min(trial, 2, len(chosen))):
                    chosen[name] = chance.choice(structure.choices[name])
                try:
                    text = structure.render(chosen)
                    candidate = (
                        load(text, folder, f"{task}_{number}_{trial}").ModelNew(*module.get_init_inputs()).cuda()
                    )
                    candidate.load_state_dict(reference.state_dict())
                    error = error_of(candidate(*inputs), expected)
                    tried.append((time_us(lambda: candidate(*inputs)), describe(chosen), error))  # noqa: B023
                except Exception as failure:
                    if trial == 0:
                        print(f"  {structure.name}: {type(failure).__name__}: {str(failure).splitlines()[:1]}")
            for kind, best in (("default", tried[:1]), ("best", sorted(tried)[:1] if sweep else [])):
                for time, text, error in best:
                    ratios = f"{eager / time:.2f}x eager, {compiled / time:.2f}x compile"
                    print(f"  {structure.name:32s} {kind:8s} {time:8.0f} us  {ratios}  error {error:.1e}  {text}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tasks", nargs="*")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--sweep", type=int, default=0)
    options = parser.parse_args()
    names = sorted(path.stem for path in BUILTIN.glob("[a-z]*.py"))
    with tempfile.TemporaryDirectory() as folder:
        for task in options.tasks or names:
            run(task, options.arch, options.sweep, Path(folder))


if __name__ == "__main__":
    main()
