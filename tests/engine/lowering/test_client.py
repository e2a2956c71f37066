"""The lowering process as the engine sees it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.lowering.client import LoweringClient, LoweringError
from engine.records import Case, Task
from engine.tasks.catalogue import find_task
from tests.engine.lowering.conftest import ROOT


def task_of(source: str) -> Task:
    return Task("own", "own", "kernelbench", "own.py", textwrap.dedent(source), (Case(),))


@pytest.fixture
async def client() -> AsyncIterator[LoweringClient]:
    async with LoweringClient() as opened:
        yield opened


async def test_a_task_is_opened_and_rendered(client: LoweringClient) -> None:
    lowered = await client.open(find_task("swiglu"), "sm_90")
    first = lowered.structures[0]
    assert first.name == "inductor/default"
    text = await client.render(first.name, first.defaults)
    assert "class ModelNew" in text and "num_warps=4" in text
    other = await client.render(first.name, {**first.defaults, "silu_mul_kernel.num_warps": 8})
    assert "num_warps=8" in other


async def test_a_task_is_lowered_for_the_dtype_that_it_is_judged_in(client: LoweringClient) -> None:
    lowered = await client.open(find_task("linear_gelu"), "sm_90", "float16")
    assert not lowered.reasons
    names = {structure.name: structure for structure in lowered.structures}
    text = await client.render("inductor/matmul", names["inductor/matmul"].defaults)
    assert "dtype=torch.float16" in text
    tiled = await client.render("matmul/tiled", names["matmul/tiled"].defaults)
    # Products of half types know no TF32.
    assert "input_precision" not in tiled


async def test_a_process_that_died_is_started_again(client: LoweringClient) -> None:
    lowered = await client.open(find_task("swiglu"), "sm_90")
    assert client._process is not None
    first_pid = client._process.pid
    client._process.kill()
    await client._process.wait()
    structure = lowered.structures[0]
    with pytest.raises(LoweringError, match=r"ended|reached"):
        await client.render(structure.name, structure.defaults)
    assert "class ModelNew" in await client.render(structure.name, structure.defaults)
    assert client._process is not None and client._process.pid != first_pid


async def test_what_cannot_be_rendered_is_one_sentence(client: LoweringClient) -> None:
    with pytest.raises(LoweringError, match="No task has been opened"):
        await client.render("inductor/default", {})
    lowered = await client.open(find_task("softmax"), "sm_90")
    with pytest.raises(LoweringError, match="no structure named nothing"):
        await client.render("nothing", {})
    defaults = lowered.structures[0].defaults
    # The kernel's name depends on what this torch fuses.
    (rows,) = (name for name in defaults if name.endswith(".BLOCK_ROWS"))
    large = {**defaults, rows: 128}
    with pytest.raises(LoweringError, match="too large for one program"):
        await client.render(lowered.structures[0].name, large)


async def test_a_broken_task_gives_reasons_and_no_structure(client: LoweringClient) -> None:
    source = """
        import torch
        from torch import nn
        print("chatter on standard output")
        class Model(nn.Module):
            def forward(self, x):
                raise RuntimeError("no forward today")
        def get_inputs():
            return [torch.randn(8, 8)]
        def get_init_inputs():
            return []
    """
    lowered = await client.open(task_of(source), "sm_90")
    assert lowered.structures == ()
    assert any("no forward today" in reason for reason in lowered.reasons)


async def test_a_task_that_never_ends_is_stopped(client: LoweringClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.lowering.client.OPEN_SECONDS", 3.0)
    with pytest.raises(LoweringError, match="did not answer within 3 s"):
        await client.open(task_of("while True: pass"), "sm_90")
    assert client._process is None


async def test_the_process_dies_with_its_engine() -> None:
    program = """
        import asyncio, os, sys
        from engine.lowering.client import LoweringClient
        from engine.tasks.catalogue import find_task
        async def main():
            client = LoweringClient()
            await client.open(find_task("swiglu"), "sm_90")
            print(client._process.pid, flush=True)
            os.kill(os.getpid(), 9)
        asyncio.run(main())
    """
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
    )
    pid = int(done.stdout)
    for _ in range(200):
        if not _alive(pid):
            return
        await asyncio.sleep(0.01)
    pytest.fail("the lowering process outlived its engine")


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_engine_side_imports_no_torch() -> None:
    check = "import sys, engine.lowering.client, engine.lowering.neighbours; sys.exit('torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run([sys.executable, "-c", check], env=environment).returncode == 0
