"""How the modelled time of our own templates compares with the time measured on an NVIDIA GPU.

Run on a machine with a GPU: python benchmarks/model_against_device.py [--arch sm_90] [--variants 20] [TASK ...]

For each built-in task, every structure of our templates and single changes of its parameters are modelled as
on a machine without a GPU and then measured with a cold second-level cache. Prints both, their ratio, and for
each task the rank correlation, which is what a search needs.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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


def candidates(folder: Path, tasks: list[str]) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.glob("*.py")):
        task = path.stem.partition("@")[0]
        if task in tasks:
            yield path, task


def render(folder: Path, tasks: list[str], arch: str, most: int) -> None:
    """Writes every structure with its defaults, and changes of one parameter, evenly spread, up to `most` in all."""
    from engine.lowering.structure import describe
    from engine.lowering.templates import structures

    for name in tasks:
        found, _ = structures((TASKS / f"{name}.py").read_text(), {}, arch)
        plain = [(structure, dict(structure.defaults)) for structure in found]
        changed = [
            (structure, {**structure.defaults, key: value})
            for structure in found
            for key, values in structure.choices.items()
            for value in values
            if value != structure.defaults[key]
        ]
        room = min(max(0, most - len(plain)), len(changed))
        chosen = plain + [changed[index * len(changed) // room] for index in range(room)]
        for number, (structure, parameters) in enumerate(chosen):
            try:
                text = structure.render(parameters)
            except ValueError:
                continue
            path = folder / f"{name}@{number:03}.py"
            path.write_text(text)
            path.with_suffix(".title").write_text(f"{structure.name} {describe(parameters)}")


def sample(folder: Path, tasks: list[str], arch: str) -> None:
    from engine.judging.workers import emulation, large_form, launches

    launches.install("cpu", arch)
    emulation.enter()
    forms: dict[str, Any] = {}
    for path, task in candidates(folder, tasks):
        if task not in forms:
            forms[task] = large_form.describe(load(TASKS / f"{task}.py", task), None)
        try:
            trace = launches.sample(load(path, "candidate").ModelNew, forms[task].contestant)
        except Exception as error:
            print(f"{path.stem} cannot be sampled: {error}", file=sys.stderr)
            continue
        path.with_suffix(".trace").write_text(json.dumps({**trace, "cost": forms[task].cost}))


def model(folder: Path, tasks: list[str], arch: str) -> None:
    from engine.judging.modelled_time import modelled_time_us
    from engine.judging.workers.compiler import compile_launches

    for path, _ in candidates(folder, tasks):
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


def warm(folder: Path, tasks: list[str]) -> None:
    """Compiles and tunes, so that measuring finds everything in the cache. Several may do so at once."""
    for path, task in candidates(folder, tasks):
        if path.with_suffix(".modelled").exists():
            initial, tensors = inputs_of(task)
            try:
                called(path, initial, tensors)
            except Exception as error:
                print(f"{path.stem} cannot be run: {error}", file=sys.stderr, flush=True)
                path.with_suffix(".modelled").unlink()
                # After an illegal access this process can no longer use the device.
                os.execv(sys.executable, [sys.executable, *sys.argv])


@functools.cache
def inputs_of(task: str) -> tuple[list[Any], list[Any]]:
    module = load(TASKS / f"{task}.py", task)
    return module.get_init_inputs(), [tensor.cuda() for tensor in module.get_inputs()]


def called(path: Path, initial: list[Any], tensors: list[Any]) -> Any:
    """The candidate, called a few times."""
    import torch

    with torch.no_grad():
        candidate = load(path, "candidate").ModelNew(*initial).cuda()
        for _ in range(3):
            candidate(*tensors)
    torch.cuda.synchronize()
    return candidate


def measure(folder: Path, tasks: list[str]) -> None:
    import torch

    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    for path, task in candidates(folder, tasks):
        if not path.with_suffix(".modelled").exists():
            continue
        initial, tensors = inputs_of(task)
        candidate = called(path, initial, tensors)
        with torch.no_grad():
            times = [one_call(candidate, tensors, flush) for _ in range(CALLS)]
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


def report(folder: Path, tasks: list[str]) -> None:
    rows: dict[str, list[tuple[float, float, str]]] = {}
    for path, task in candidates(folder, tasks):
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
    parser.add_argument("--variants", type=int, default=20, help="the most of each task")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    tasks = options.tasks or sorted(
        path.stem for path in TASKS.glob("*.py") if "class Model" in path.read_text(encoding="utf-8")
    )
    if options.step:
        folder = Path(options.folder)
        steps = {
            "render": lambda: render(folder, tasks, options.arch, options.variants),
            "sample": lambda: sample(folder, tasks, options.arch),
            "model": lambda: model(folder, tasks, options.arch),
            "warm": lambda: warm(folder, tasks),
            "measure": lambda: measure(folder, tasks),
        }
        steps[options.step]()
        return
    with tempfile.TemporaryDirectory() as name:

        def run(step: str, only: str) -> None:
            # Each step needs its own process: kernels are either interpreted or compiled in one, never both.
            environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": f"{name}/triton"}
            environment |= {"TRITON_INTERPRET": "1"} if step == "sample" else {}
            arguments = ["--folder", name, "--arch", options.arch, "--variants", str(options.variants), only]
            subprocess.run([sys.executable, __file__, "--step", step, *arguments], check=True, env=environment)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for step in ("render", "sample", "model", "warm"):
                list(pool.map(run, [step] * len(tasks), tasks))
        for task in tasks:
            run("measure", task)
        report(Path(name), tasks)


if __name__ == "__main__":
    main()
