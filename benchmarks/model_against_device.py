"""How the modelled time of our own templates compares with the time measured on an NVIDIA GPU.

Run on a machine with a GPU: python benchmarks/model_against_device.py [--arch sm_90] [--all] [TASK ...]

For each built-in task, every structure of our templates (with --all also each single change of a
parameter) is modelled as on a machine without a GPU and then measured with a cold second-level cache.
Prints both, their ratio, and for each task the rank correlation, which is what a search needs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TASKS = ROOT / "engine" / "tasks" / "builtin"
CALLS = 30
FLUSH_BYTES = 256 << 20


def load(path: Path, name: str) -> types.ModuleType:
    import importlib.util

    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def candidates(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.glob("*.py")):
        yield path, path.stem.partition("@")[0]


def render(folder: Path, tasks: list[str], arch: str, everything: bool) -> None:
    from engine.lowering.structure import describe
    from engine.lowering.templates import structures

    for name in tasks:
        found, _ = structures((TASKS / f"{name}.py").read_text(), {}, arch)
        for index, structure in enumerate(found):
            variants = [dict(structure.defaults)]
            if everything:
                for key, values in structure.choices.items():
                    variants += [{**structure.defaults, key: value} for value in values]
            for number, parameters in enumerate(variants):
                try:
                    text = structure.render(parameters)
                except ValueError:
                    continue
                path = folder / f"{name}@{index:02}-{number:02}.py"
                path.write_text(text)
                path.with_suffix(".title").write_text(f"{structure.name} {describe(parameters)}")


def sample(folder: Path, arch: str) -> None:
    from engine.judging.workers import emulation, large_form, launches

    launches.install("cpu", arch)
    emulation.enter()
    forms: dict[str, Any] = {}
    for path, task in candidates(folder):
        if task not in forms:
            forms[task] = large_form.describe(load(TASKS / f"{task}.py", task), None)
        try:
            trace = launches.sample(load(path, "candidate").ModelNew, forms[task].contestant)
        except Exception as error:
            print(f"{path.stem} cannot be sampled: {error}", file=sys.stderr)
            continue
        path.with_suffix(".trace").write_text(json.dumps({**trace, "cost": forms[task].cost}))


def model(folder: Path, arch: str) -> None:
    from engine.judging.modelled_time import modelled_time_us
    from engine.judging.workers.compiler import compile_launches

    for path, _ in candidates(folder):
        if not path.with_suffix(".trace").exists():
            continue
        sampled = json.loads(path.with_suffix(".trace").read_text())
        compiled = compile_launches(path.read_text(), sampled["trace"], arch)
        if compiled["error"]:
            print(f"{path.stem}: {compiled['error']['message']}", file=sys.stderr)
            continue
        found = modelled_time_us(sampled["trace"], compiled["kernels"], arch, sampled["cost"]["bound"])
        answer = {"time_us": found.time_us, "limits": [part["limit"] for part in found.parts]}
        path.with_suffix(".modelled").write_text(json.dumps(answer))


def measure(folder: Path) -> None:
    import torch

    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    inputs: dict[str, Any] = {}
    for path, task in candidates(folder):
        if not path.with_suffix(".modelled").exists():
            continue
        if task not in inputs:
            inputs.clear()
            module = load(TASKS / f"{task}.py", task)
            inputs[task] = (module.get_init_inputs(), [tensor.cuda() for tensor in module.get_inputs()])
        initial, tensors = inputs[task]
        try:
            with torch.no_grad():
                candidate = load(path, "candidate").ModelNew(*initial).cuda()
                for _ in range(3):
                    candidate(*tensors)
                times = [one_call(candidate, tensors, flush) for _ in range(CALLS)]
        except Exception as error:
            print(f"{path.stem} cannot be measured: {error}", file=sys.stderr)
            continue
        path.with_suffix(".measured").write_text(str(statistics.median(times)))


def one_call(candidate: Any, tensors: list[Any], flush: Any) -> float:
    """Microseconds on the device, the second-level cache being cold."""
    import torch

    flush.zero_()
    event: Any = torch.cuda.Event
    before, after = event(enable_timing=True), event(enable_timing=True)
    before.record()
    candidate(*tensors)
    after.record()
    torch.cuda.synchronize()
    return float(before.elapsed_time(after)) * 1e3


def ranks(values: list[float]) -> list[float]:
    return [sum(other < value for other in values) + 0.5 * values.count(value) for value in values]


def report(folder: Path) -> None:
    rows: dict[str, list[tuple[float, float, str]]] = {}
    for path, task in candidates(folder):
        if path.with_suffix(".measured").exists():
            modelled = json.loads(path.with_suffix(".modelled").read_text())
            title = f"{path.with_suffix('.title').read_text()}  [{', '.join(modelled['limits'])}]"
            pair = (float(path.with_suffix(".measured").read_text()), modelled["time_us"])
            rows.setdefault(task, []).append((*pair, title))
    ratios = []
    for task, found in rows.items():
        print(f"{task}\n  measured us  modelled us  ratio")
        for measured, modelled_us, title in sorted(found):
            ratios.append(modelled_us / measured)
            print(f"  {measured:11.1f}  {modelled_us:11.1f}  {modelled_us / measured:5.2f}  {title}")
        one, other = ranks([row[0] for row in found]), ranks([row[1] for row in found])
        if len(set(one)) > 1 and len(set(other)) > 1:
            print(f"  rank correlation {statistics.correlation(one, other):.2f} over {len(found)}")
    if ratios:
        print(f"modelled over measured: median {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", help="built-in tasks; all by default")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--all", action="store_true", help="also every single change of a parameter")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    tasks = options.tasks or sorted(
        path.stem for path in TASKS.glob("*.py") if "class Model" in path.read_text(encoding="utf-8")
    )
    if options.step:
        folder = Path(options.folder)
        steps = {
            "render": lambda: render(folder, tasks, options.arch, options.all),
            "sample": lambda: sample(folder, options.arch),
            "model": lambda: model(folder, options.arch),
            "measure": lambda: measure(folder),
        }
        steps[options.step]()
        return
    with tempfile.TemporaryDirectory() as name:
        for step in ("render", "sample", "model", "measure"):
            # Each step needs its own process: kernels are either interpreted or compiled in one, never both.
            environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": f"{name}/triton"}
            environment |= {"TRITON_INTERPRET": "1"} if step == "sample" else {}
            subprocess.run(
                [sys.executable, __file__, "--step", step, "--folder", name, "--arch", options.arch]
                + (["--all"] if options.all else [])
                + tasks,
                check=True,
                env=environment,
            )
        report(Path(name))


if __name__ == "__main__":
    main()
