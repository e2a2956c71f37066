"""Run as a script: compiles the kernels that candidate modules launch at a task's large form, without a GPU.

Standard input: JSON with `source`, `arch` and `modules` (name to text). Standard output: JSON, for each
name a list of kernels with registers, spills and shared bytes, or a text that says what is wrong.
"""

from __future__ import annotations

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
from interpret_modules import load
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

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


def main() -> None:
    request = json.load(sys.stdin)
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
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
