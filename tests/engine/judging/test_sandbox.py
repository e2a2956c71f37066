"""What a hostile candidate cannot reach, and which layer stops it: each is also tried without the others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from engine.judging import sandbox_kernel
from engine.judging.evaluator import Evaluator
from engine.judging.sandbox import LAYERS, wanted
from engine.judging.settings import JudgeSettings
from engine.records import Task, Verdict
from tests.engine.judging.conftest import SCALE_TASK, children_of, make_task, scale_candidate
from tests.engine.judging.test_bad_candidates import in_forward, in_module

pytestmark = pytest.mark.asyncio(loop_scope="module")

TASK = make_task(SCALE_TASK, {"ROWS": 7, "COLUMNS": 50})
REACHES_OUT = (Path(__file__).parents[2] / "candidates" / "sandbox" / "reaches_out.py").read_text()
REFUSED = {"EACCES", "EPERM"}

ALL = "auto"
WITHOUT_LANDLOCK = "no-landlock"
LANDLOCK_ALONE = "no-user,no-processes,no-network,no-ipc"
PRIVILEGES_ALONE = f"{WITHOUT_LANDLOCK},{LANDLOCK_ALONE}"


@dataclass(frozen=True)
class Found:
    """What the hostile candidate found under one setting, and the layers that were in force."""

    layers: tuple[str, ...]
    attempts: dict[str, Any]
    memory: dict[str, int]
    ours: list[int]
    left: list[str]

    def with_others(self, attempt: str) -> set[str]:
        """How an attempt ended with each process of the judge's, and with the engine where it is visible."""
        results: dict[str, str] = self.attempts[attempt]
        # Without a process namespace those of other people are visible too.
        visible = results if "processes" in self.layers else [str(pid) for pid in self.ours]
        assert visible
        return {results[pid] for pid in visible}

    def needs(self, *layers: str) -> None:
        """Skips the test where the kernel offers none of the layers that could stop the attempt."""
        if not set(layers) & set(self.layers):
            pytest.skip(f"this kernel offers none of: {', '.join(layers)}")


@dataclass(frozen=True)
class World:
    """What lies outside the sandbox for the candidate to find."""

    database: Path
    tcp: socket.socket
    abstract: socket.socket
    named: socket.socket


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    database = tmp_path_factory.mktemp("project") / "runs.db"
    database.write_text("not for candidates")
    database.parent.chmod(0o777)
    database.chmod(0o666)
    name = f"\0kernelgrove-test-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(name)
        abstract.listen()
        with socket.socket(socket.AF_UNIX) as named:
            named.bind(str(tmp_path_factory.mktemp("service") / "socket"))
            named.listen()
            yield World(database, tcp, abstract, named)


async def found_under(
    setting: str, world: World, settings: JudgeSettings, source: str = REACHES_OUT, task: Task = TASK
) -> Found:
    """Judges the hostile candidate under a setting; its answer is honest, so it must be correct."""
    async with Evaluator(task, replace(settings, sandbox=setting)) as judge:
        crew = judge._crew
        assert crew is not None
        ours = [os.getpid(), crew._judge.process.pid, crew._nursery.process.pid]
        told = {
            "database": str(world.database),
            "log": str(crew._judge.log),
            "port": world.tcp.getsockname()[1],
            "abstract": world.abstract.getsockname().decode(),
            "named": world.named.getsockname(),
            "processes": [] if "processes" in crew.sandbox.layers else ours,
        }
        evaluation = await judge.evaluate(source.replace("TOLD = {}", f"TOLD = {told!r}"))
        layers = crew.sandbox.layers
    # It applies to this process, and only where no layer of the kernel's stands in for it.
    sandbox_kernel.hide_memory(False)
    assert evaluation.verdict is Verdict.CORRECT, (evaluation.reason, evaluation.log)
    lines = {line.partition(" ")[0]: line.partition(" ")[2] for line in evaluation.log.splitlines()}
    left = sorted(entry.name for entry in world.database.parent.iterdir())
    for name in left[1:]:
        (world.database.parent / name).unlink()
    assert world.database.read_text() == "not for candidates"
    return Found(layers, json.loads(lines["FOUND"]), json.loads(lines["MEMORY"]), ours, left)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def found(world: World, cpu_settings: JudgeSettings) -> dict[str, Found]:
    settings = (ALL, WITHOUT_LANDLOCK, LANDLOCK_ALONE, PRIVILEGES_ALONE)
    return {setting: await found_under(setting, world, cpu_settings) for setting in settings}


async def test_a_key_is_neither_in_its_own_environment_nor_in_one_it_can_read(found: dict[str, Found]) -> None:
    for setting, layers in (
        (ALL, ("landlock", "user")),
        (WITHOUT_LANDLOCK, ("privileges",)),
        (LANDLOCK_ALONE, ("landlock",)),
        (PRIVILEGES_ALONE, ("privileges",)),
    ):
        here = found[setting]
        here.needs(*layers)
        names = here.attempts["environment"]
        assert not [name for name in names if "KEY" in name or "TOKEN" in name or "SECRET" in name]
        assert here.with_others("others environ") <= REFUSED, setting


@pytest.mark.parametrize("what", ["others memory", "others files"])
@pytest.mark.parametrize("setting", [ALL, WITHOUT_LANDLOCK, LANDLOCK_ALONE, PRIVILEGES_ALONE])
async def test_memory_and_files_of_other_processes_are_closed(found: dict[str, Found], setting: str, what: str) -> None:
    found[setting].needs("landlock", "privileges")
    assert found[setting].with_others(what) <= REFUSED


async def test_the_engine_is_not_even_visible(found: dict[str, Found]) -> None:
    here = found[WITHOUT_LANDLOCK]
    here.needs("processes")
    seen = here.attempts["others environ"]
    # Process number one, judge, nursery and compile nursery with what they start.
    assert "1" in seen
    assert str(here.ours[0]) not in seen
    assert all(int(pid) < 100 for pid in seen)


async def test_judge_nursery_and_engine_cannot_be_signalled(found: dict[str, Found]) -> None:
    for setting in (ALL, LANDLOCK_ALONE):
        found[setting].needs("signals")
        assert found[setting].with_others("others signal") == {"EPERM"}


@pytest.mark.parametrize(
    "attempt",
    [
        "read database",
        "read database through a link",
        "list the database's folder",
        "link the database",
        "read the judge's log",
        "write database",
        "write beside the database",
        "write beside the scratch folder",
        "move out of the scratch folder",
        "write packages",
        "write system settings",
    ],
)
async def test_files_outside_the_scratch_folder_are_closed(found: dict[str, Found], attempt: str) -> None:
    for setting in (ALL, LANDLOCK_ALONE):
        found[setting].needs("landlock")
        assert found[setting].attempts[attempt] in {*REFUSED, "EXDEV", "EROFS"}
        assert found[setting].attempts["write scratch"] == "done"
        assert found[setting].left == ["runs.db"]


async def test_system_settings_stay_closed_without_landlock(found: dict[str, Found]) -> None:
    found[WITHOUT_LANDLOCK].needs("processes")
    assert found[WITHOUT_LANDLOCK].attempts["write system settings"] in {*REFUSED, "EROFS"}


async def test_the_network_is_out_of_reach(found: dict[str, Found]) -> None:
    found[WITHOUT_LANDLOCK].needs("network")
    for setting in (ALL, WITHOUT_LANDLOCK):
        assert found[setting].attempts["connect"] in {"ENETUNREACH", *REFUSED}
        assert found[setting].attempts["send"] == "ENETUNREACH"
        assert found[setting].attempts["abstract socket"] in {"ECONNREFUSED", *REFUSED}
    # The same attempt succeeds where nothing stops it, so that the test could fail.
    assert found[PRIVILEGES_ALONE].attempts["connect"] == "done"


async def test_services_behind_named_sockets_are_covered(found: dict[str, Found]) -> None:
    found[WITHOUT_LANDLOCK].needs("processes")
    for setting in (ALL, WITHOUT_LANDLOCK):
        assert found[setting].attempts["named socket"] in {"ECONNREFUSED", *REFUSED}
    assert found[PRIVILEGES_ALONE].attempts["named socket"] == "done"


async def test_landlock_alone_stops_tcp_and_abstract_sockets(found: dict[str, Found]) -> None:
    found[LANDLOCK_ALONE].needs("tcp")
    assert found[LANDLOCK_ALONE].attempts["connect"] in REFUSED
    found[LANDLOCK_ALONE].needs("sockets")
    assert found[LANDLOCK_ALONE].attempts["abstract socket"] in REFUSED


async def test_no_expected_value_is_in_its_memory(found: dict[str, Found]) -> None:
    for here in found.values():
        assert here.memory["given"] >= 1, "the search must find what is there"
        assert here.memory["expected"] == 0
        for name in here.attempts["descriptors"]:
            assert name.startswith(("socket:", "pipe:", "/proc/")), name
        assert here.attempts["input"] == ""


async def test_no_new_namespace_gives_it_rights(found: dict[str, Found]) -> None:
    found[ALL].needs("user")
    assert found[ALL].attempts["new namespace"] in {"ENOSPC", *REFUSED}


DAEMON = (
    "import os, signal\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork() == 0:\n"
    "        os.setsid()\n"
    "        signal.pause()\n"
    "    os._exit(0)\n"
    "os.wait()\n"
)


def descendants_of(parent: int) -> set[int]:
    """Every living process beneath `parent`."""
    found: set[int] = set()
    for child in children_of(parent):
        found |= {child} | descendants_of(child)
    return found


async def shrunk(parent: int, expected: set[int]) -> bool:
    """Waits until no other process than those expected lives beneath `parent`."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if await asyncio.to_thread(descendants_of, parent) <= expected:
            return True
    return False


@pytest.mark.parametrize("setting", [ALL, "no-user,no-processes"])
async def test_a_daemon_is_gone_with_its_candidate(cpu_settings: JudgeSettings, setting: str) -> None:
    async with Evaluator(TASK, replace(cpu_settings, sandbox=setting)) as judge:
        crew = judge._crew
        assert crew is not None and crew._launcher._process is not None
        launcher = crew._launcher._process.pid
        before = descendants_of(launcher)
        assert (await judge.evaluate(in_module(DAEMON))).correct
        # The compiling child has answered and may still be on its way out.
        assert await shrunk(launcher, before)


@pytest.mark.parametrize("setting", [ALL, "no-user,no-processes"])
async def test_nothing_is_left_when_the_nursery_dies_under_a_daemon(cpu_settings: JudgeSettings, setting: str) -> None:
    judge = Evaluator(TASK, replace(cpu_settings, sandbox=setting))
    await judge.open()
    crew = judge._crew
    assert crew is not None and crew._launcher._process is not None
    launcher = crew._launcher._process.pid
    alive = asyncio.Event()
    seen: set[int] = set()

    def notice(text: str) -> None:
        if not alive.is_set():
            alive.set()
            seen.update(descendants_of(launcher))
            os.kill(crew._nursery.process.pid, signal.SIGKILL)

    lingering = in_forward("print('here', flush=True)\n        while True: pass").replace(
        "from torch import nn\n", f"from torch import nn\n{DAEMON}"
    )
    running = asyncio.create_task(judge.evaluate(lingering, on_log=notice))
    await alive.wait()
    assert len(seen) >= 5
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    await judge.close()
    assert [pid for pid in seen if Path(f"/proc/{pid}").exists()] == []


async def test_an_honest_candidate_passes_with_the_sandbox_off_too(cpu_settings: JudgeSettings) -> None:
    async with Evaluator(TASK, replace(cpu_settings, sandbox="off")) as judge:
        assert judge._crew is not None
        assert judge._crew.sandbox.layers == ()
        assert (await judge.evaluate(scale_candidate())).correct


@pytest.mark.parametrize("setting", ["on", "no-such", "no-landlock,off"])
async def test_a_wrong_setting_is_said_in_one_sentence(setting: str) -> None:
    with pytest.raises(ValueError, match="KERNELGROVE_SANDBOX is") as raised:
        wanted(setting)
    assert "no-landlock" in str(raised.value)


async def test_layers_are_left_out_by_name() -> None:
    assert wanted("auto") == LAYERS
    assert set(LAYERS) - set(wanted("no-landlock,no-ipc")) == {"landlock", "ipc"}
    assert wanted("off") == ()
