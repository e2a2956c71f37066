"""Launches of compiled kernels are noted, left out or made to fail; their code and order have a fingerprint.

The kernels are compiled for real and launched by a stand-in for the driver, so that no GPU is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton.language as tl
from triton import compile as compile_kernel
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel
from triton.runtime.jit import JITFunction

from engine.judging.workers.compiled_launches import Recorder, recording
from engine.judging.workers.conditions import LaunchRefused


def copy_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + place, tl.load(x_ptr + place))


def renamed_kernel(source, target, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    where = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    tl.store(target + where, tl.load(source + where))


class Launches(list[tuple[int, ...]]):
    """The grids that reached the driver."""


def compiled(function: Callable[..., None], block: int, reached: Launches) -> Any:
    """A kernel as it is after its first launch, whose further ones end in `reached`."""
    first, second, constant = function.__code__.co_varnames[:3]
    signature = {first: "*fp32", second: "*fp32", constant: "constexpr"}
    source = ASTSource(JITFunction(function), signature, {(2,): block})
    kernel = compile_kernel(source, target=GPUTarget("cuda", 90, 32))
    kernel.module, kernel.function, kernel.n_regs, kernel.n_spills = object(), 1, 18, 0
    kernel._run = lambda x, y, z, *rest: reached.append((x, y, z))
    return kernel


def run(kernel: Any, programs: int = 4) -> Any:
    return kernel[(programs, 1, 1)](torch.empty(1), torch.empty(1), stream=0)


@pytest.fixture
def reached() -> Launches:
    return Launches()


def test_a_launch_is_noted_with_its_resources_and_takes_place(reached: Launches) -> None:
    kernel = compiled(copy_kernel, 64, reached)
    with recording("run") as recorder:
        run(kernel)
        run(kernel)
    assert reached == [(4, 1, 1)] * 2
    (noted,) = recorder.kernels.values()
    assert (noted["kernel"], noted["arch"], noted["registers"], noted["num_warps"]) == ("copy_kernel", "sm_90", 18, 4)


@pytest.mark.parametrize("conduct", ["skip", "fail"])
def test_a_launch_that_is_left_out_or_refused_does_not_reach_the_device(reached: Launches, conduct: str) -> None:
    kernel = compiled(copy_kernel, 64, reached)
    with recording(conduct):
        if conduct == "skip":
            run(kernel)
            torch.cuda.CUDAGraph.replay(None)  # type: ignore[arg-type]
        else:
            with pytest.raises(LaunchRefused):
                run(kernel)
            with pytest.raises(LaunchRefused):
                torch.cuda.CUDAGraph.replay(None)  # type: ignore[arg-type]
    assert reached == []
    run(kernel)
    assert reached == [(4, 1, 1)]


def test_nothing_stays_wrapped_when_the_recording_ends(reached: Launches) -> None:
    before = (vars(CompiledKernel)["run"], vars(torch.cuda.CUDAGraph)["replay"])
    kernel = compiled(copy_kernel, 64, reached)
    with recording("fail"):
        kept = kernel.run
    assert (vars(CompiledKernel)["run"], vars(torch.cuda.CUDAGraph)["replay"]) == before
    # PyTorch's compiler keeps such a function.
    kept(1, 1, 1, 0)
    assert reached == [(1, 1, 1)]


def fingerprint(work: Callable[[], object]) -> str | None:
    with recording("run") as recorder:
        work()
    return recorder.fingerprint()


def test_equal_code_and_grids_have_one_fingerprint_whatever_the_names(reached: Launches) -> None:
    kernel, other = compiled(copy_kernel, 64, reached), compiled(renamed_kernel, 64, reached)
    first = fingerprint(lambda: run(kernel))
    assert first is not None
    assert fingerprint(lambda: run(other)) == first


def test_other_grids_blocks_and_library_calls_have_other_fingerprints(reached: Launches) -> None:
    kernel, wider = compiled(copy_kernel, 64, reached), compiled(copy_kernel, 128, reached)
    x = torch.ones(3, 3)
    found = [
        fingerprint(lambda: run(kernel)),
        fingerprint(lambda: run(kernel, programs=5)),
        fingerprint(lambda: run(wider)),
        fingerprint(lambda: (torch.matmul(x, x), run(kernel))),
        fingerprint(lambda: (torch.matmul(x, x[:, :2]), run(kernel))),
        fingerprint(lambda: [run(kernel) for _ in range(2)]),
    ]
    assert None not in found
    assert len(set(found)) == len(found)


def test_what_a_graph_launches_cannot_be_seen() -> None:
    recorder = Recorder("run", stream=0)
    assert recorder.replay(stream=0)
    assert (recorder.replays, recorder.fingerprint()) == (1, None)
