"""Run as a script on candidate modules: not a test itself, since triton's interpreter is chosen at import.

`interpret` (under TRITON_INTERPRET=1) judges them at the task's small form: "" or what is wrong.
`compile` compiles, without a GPU, the kernels that they launch at the large form: for each kernel registers,
stack, shared bytes and kinds of loads, or a text that says what is wrong.
Standard input: JSON, a list with `source`, `small`, `arch`, `modules` (name to text) each; standard output: a list
of answers by name.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import traceback
import types
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from engine.judging.workers import recorder

TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}


def load(text: str, folder: Path, name: str) -> types.ModuleType:
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def flat(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)


def exact(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def judged(task: types.ModuleType, candidate: types.ModuleType) -> str:
    torch.manual_seed(0)
    reference = task.Model(*task.get_init_inputs())
    model = candidate.ModelNew(*task.get_init_inputs())
    model.load_state_dict(reference.state_dict())
    inputs = task.get_inputs()
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    kept = [tensor.clone() for tensor in tensors]
    with torch.no_grad():
        found = flat(model(*inputs))
        if any(not torch.equal(tensor, copy) for tensor, copy in zip(tensors, kept, strict=True)):
            return "an input was changed"
        tolerance = max(TOLERANCES[tensor.dtype] for tensor in [*tensors, *found] if tensor.is_floating_point())
        expected = flat(reference.double()(*(exact(tensor) for tensor in inputs)))
    if len(found) != len(expected):
        return f"{len(found)} outputs instead of {len(expected)}"
    for place, (got, wanted) in enumerate(zip(found, expected, strict=True)):
        if got.shape != wanted.shape:
            return f"output {place} has shape {tuple(got.shape)} instead of {tuple(wanted.shape)}"
        difference = float((got.double() - wanted.double()).norm() / wanted.double().norm().clamp_min(1e-30))
        if not difference <= tolerance:
            return f"output {place} is off by {difference:.2e}"
    return ""


def interpreted(request: dict[str, Any]) -> dict[str, str]:
    task = types.ModuleType("task")
    exec(request["source"], task.__dict__)
    task.__dict__.update(request["small"])
    answers: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, text) in enumerate(request["modules"].items()):
            try:
                answers[name] = judged(task, load(text, Path(folder), f"candidate_{number}"))
            except Exception:
                answers[name] = traceback.format_exc()
    return answers


NAMES = {
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.bool: "i1",
}


def signature_of(kernel: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, ...]:
    signature: dict[str, str] = {}
    constants: dict[tuple[int, ...], Any] = {}
    attributes: dict[tuple[int, ...], Any] = {}
    given = dict(zip(kernel.arg_names, arguments, strict=False))
    for place, name in enumerate(kernel.arg_names):
        value: Any = given.get(name, options.get(name))
        if name in options:
            signature[name] = "constexpr"
            constants[(place,)] = value
        elif isinstance(value, torch.Tensor):
            signature[name] = f"*{NAMES[value.dtype]}"
            attributes[(place,)] = [["tt.divisibility", 16]]
        elif isinstance(value, float):
            signature[name] = "fp32"
        else:
            signature[name] = "i32" if value < 2**31 else "i64"
            if value == 1:
                signature[name] = "constexpr"
                constants[(place,)] = 1
            elif value % 16 == 0:
                attributes[(place,)] = [["tt.divisibility", 16]]
    return signature, constants, attributes


def resources(binary: bytes) -> dict[str, int]:
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        text = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True).stdout
    return {name.lower(): int(number) for name, number in re.findall(r"(REG|STACK|SHARED|LOCAL):(\d+)", text)}


def compiled(request: dict[str, Any]) -> dict[str, Any]:
    launches: list[tuple[Any, Any, tuple[Any, ...], dict[str, Any]]] = []

    def record(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> None:
        launches.append((self, grid, arguments, options))

    JITFunction.run = record
    task = types.ModuleType("task")
    exec(request["source"], task.__dict__)
    answers: dict[str, Any] = {}
    target = GPUTarget("cuda", int(request["arch"].removeprefix("sm_")), 32)
    with tempfile.TemporaryDirectory() as folder, torch.device("meta"):
        for number, (name, text) in enumerate(request["modules"].items()):
            launches.clear()
            try:
                candidate = load(text, Path(folder), f"candidate_{number}")
                candidate.ModelNew(*task.get_init_inputs())(*task.get_inputs())
                kernels = []
                for kernel, grid, arguments, options in launches:
                    signature, constants, attributes = signature_of(kernel, arguments, options)
                    known = {key: value for key, value in options.items() if key not in kernel.arg_names}
                    source = ASTSource(kernel, signature, constants, attributes)
                    compiled = triton.compile(source, target=target, options=known)
                    facts = {"kernel": kernel.__name__, "grid": list(grid), **resources(compiled.asm["cubin"])}
                    facts["dynamic_shared"] = compiled.metadata.shared
                    ptx = compiled.asm["ptx"]
                    facts["loads"] = sorted(set(re.findall(r"ld\.global\S*", ptx)))
                    facts["instructions"] = sorted(set(re.findall(r"(wgmma|mma)\.\S+", ptx)))
                    kernels.append(facts)
                answers[name] = kernels
            except Exception:
                answers[name] = traceback.format_exc()
    return answers


if __name__ == "__main__":
    if sys.argv[1] == "interpret":
        # As the judge runs it: the interpreter of triton 3.6 alone does not work with newer versions of numpy.
        recorder.install("sm_90")
    answer = {"interpret": interpreted, "compile": compiled}[sys.argv[1]]
    json.dump([answer(request) for request in json.load(sys.stdin)], sys.stdout)
