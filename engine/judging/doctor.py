"""What this machine can do for judging: the sandbox's layers, the interpreter, the compiler, the GPU.

Everything is tried, not guessed, in processes of its own; no torch is loaded here.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import engine
from engine.judging import sandbox
from engine.judging.processes import Launcher, clean_environment

_TIMEOUT_S = 60.0


class State(StrEnum):
    """How a thing stands: as it should be, working with something missing, missing, or left out by a person."""

    GOOD = "good"
    LIMITED = "limited"
    MISSING = "missing"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Layer:
    """One thing that was looked at: what it is, how it stands, in words, and what to do about it."""

    name: str
    state: State
    detail: str
    advice: str = ""


_NAMESPACE_ADVICE = (
    "allow user namespaces (Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns=0; Debian: "
    "kernel.unprivileged_userns_clone=1; a container: --security-opt seccomp=unconfined "
    "--security-opt systempaths=unconfined)"
)
_LANDLOCK_ADVICE = "use Linux 5.19 or later with landlock among its security modules (boot with lsm=landlock,...)"

_LAYERS: dict[str, tuple[str, str, str]] = {
    "user": ("candidates have no rights over other processes", "they share the user's rights", _NAMESPACE_ADVICE),
    "processes": ("candidates see judge and nursery only, and all end together", "they see all", _NAMESPACE_ADVICE),
    "network": ("candidates have no network", "they may reach the network", _NAMESPACE_ADVICE),
    "ipc": ("candidates share no System V memory", "they may open others' System V memory", _NAMESPACE_ADVICE),
    "landlock": (
        "candidates read system and packages, and write one folder each",
        "they may read and write what you may",
        _LANDLOCK_ADVICE,
    ),
    "signals": ("candidates cannot signal the judge", "they may kill the judge, which starts again", "use Linux 6.12"),
    "sockets": ("candidates reach no abstract socket", "the network layer must do that", "use Linux 6.12"),
    "tcp": ("candidates cannot open TCP connections", "the network layer must do that", "use Linux 6.7"),
    "privileges": ("candidates have no capability and gain none", "root's candidates stay root", ""),
    "process-limit": ("candidates cannot exhaust process numbers", "a fork bomb ends at the deadline", ""),
}
"""By layer: what it does, what its absence means, and how to get it."""


async def layers(python: str) -> list[Layer]:
    """The sandbox's layers as candidates judged with `python` would have them now.

    Raises:
        MachineError: nothing can be started with this interpreter.
        ValueError: KERNELGROVE_SANDBOX is wrong.
    """
    asked = sandbox.wanted(sandbox.setting())
    with tempfile.TemporaryDirectory(prefix="kernelgrove-doctor-") as folder:
        launcher = Launcher(python, Path(folder), "auto")
        try:
            await launcher.open(asked, [folder])
        finally:
            await launcher.close()
    return [_layer(name, asked, launcher) for name in _LAYERS]


def _layer(name: str, asked: tuple[str, ...], launcher: Launcher) -> Layer:
    does, means, advice = _LAYERS[name]
    if name in launcher.sandbox.layers:
        version = f" (ABI {launcher.sandbox.abi})" if name == "landlock" else ""
        return Layer(name, State.GOOD, does + version)
    if name not in asked:
        return Layer(name, State.OFF, f"left out by {sandbox.VARIABLE}: {means}", f"unset {sandbox.VARIABLE}")
    refused = f" ({launcher.refused})" if launcher.refused and advice is _NAMESPACE_ADVICE else ""
    return Layer(name, State.MISSING, f"not permitted or not there{refused}: {means}", advice)


_PROGRAM = """
import json, sys, types, time
sys.path[:] = [entry for entry in sys.path if entry]
package = types.ModuleType("engine")
package.__path__ = [sys.argv[1]]
sys.modules["engine"] = package
def say(**facts): print("FACT " + json.dumps(facts), flush=True)
say(python=".".join(map(str, sys.version_info[:3])), executable=sys.executable)
import torch
say(torch=str(torch.__version__), cuda=torch.version.cuda)
import triton
say(triton=str(triton.__version__))
from engine.judging.workers import compiler
start = time.perf_counter()
compiler.warm_up(sys.argv[2])
say(compile_s=round(time.perf_counter() - start, 2))
if torch.version.cuda:
    say(devices=[torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())])
"""


def toolchain(python: str, arch: str) -> list[Layer]:
    """The interpreter, torch, Triton, its compiler for `arch`, and the GPU, in this order."""
    facts, problem = _facts(python, arch)
    if "python" not in facts:
        return [Layer("python", State.MISSING, problem, "name an interpreter with --python")]
    found = [Layer("python", State.GOOD, f"{facts['python']} at {facts['executable']}")]
    for name in ("torch", "triton"):
        if name not in facts:
            advice = f"install torch and triton for {python}, or name another interpreter with --python"
            return [*found, Layer(name, State.MISSING, problem, advice)]
        found.append(Layer(name, State.GOOD, str(facts[name])))
    if "compile_s" in facts:
        found.append(Layer("compiler", State.GOOD, f"compiles for {arch} ({facts['compile_s']} s the first time)"))
    else:
        found.append(Layer("compiler", State.MISSING, problem, "install triton again, or choose another --arch"))
    if not any(shutil.which(name) for name in (os.environ.get("CC") or "cc", "gcc", "clang")):
        advice = "install a C compiler, such as the package gcc, or name one in CC"
        found.append(Layer("C compiler", State.MISSING, "Triton needs one to launch kernels", advice))
    return [*found, *_gpu(facts, arch)]


def _facts(python: str, arch: str) -> tuple[dict[str, object], str]:
    """What the interpreter said of itself, and how it ended where it did not come to the end."""
    with tempfile.TemporaryDirectory(prefix="kernelgrove-doctor-") as folder:
        command = [python, "-c", _PROGRAM, str(Path(engine.__file__).parent), arch]
        try:
            done = subprocess.run(
                command,
                env=clean_environment(Path(folder), "auto", single_threaded=True),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIMEOUT_S,
                check=False,
            )
        except OSError as error:
            return {}, f"{python} cannot be started: {error.strerror}"
        except subprocess.TimeoutExpired:
            return {}, f"{python} did not load torch and compile a kernel within {_TIMEOUT_S:g} s"
    facts: dict[str, object] = {}
    for line in done.stdout.splitlines():
        if line.startswith("FACT "):
            facts |= json.loads(line[5:])
    words = done.stderr.strip().splitlines()
    return facts, words[-1][:300] if words else f"{python} ended with exit code {done.returncode}"


def _gpu(facts: dict[str, object], arch: str) -> Iterator[Layer]:
    """The GPUs, as torch and the driver see them."""
    names = facts.get("devices")
    seen = list(_driver_gpus())
    if isinstance(names, list) and names:
        yield Layer("GPU", State.GOOD, ", ".join(map(str, names)))
        for name, exclusive in seen:
            if exclusive:
                advice = "run: nvidia-smi -c DEFAULT"
                yield Layer("GPU mode", State.MISSING, f"{name} admits one process, judging needs several", advice)
    elif seen:
        listed = ", ".join(name for name, _ in seen)
        detail = f"the driver has {listed}, but torch {facts.get('torch')} cannot use it: times are modelled for {arch}"
        yield Layer("GPU", State.LIMITED, detail, "install a CUDA build of torch, or name another --python")
    else:
        yield Layer("GPU", State.LIMITED, f"none: correctness is interpreted and times are modelled for {arch}")


def _driver_gpus() -> Iterator[tuple[str, bool]]:
    """Name of each GPU that the driver knows, and whether it admits one process only."""
    with contextlib.suppress(Exception):
        import pynvml

        pynvml.nvmlInit()
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            mode = pynvml.nvmlDeviceGetComputeMode(handle)
            yield str(pynvml.nvmlDeviceGetName(handle)), mode != pynvml.NVML_COMPUTEMODE_DEFAULT


def can_judge(found: list[Layer]) -> bool:
    """Whether candidates can be judged at all, given what `toolchain` found."""
    vital = {"python", "torch", "triton", "compiler"}
    return vital <= {layer.name for layer in found if layer.state is State.GOOD}
