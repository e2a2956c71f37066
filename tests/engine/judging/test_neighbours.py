"""The driver's library through ctypes, on a small stand-in for it, and other people's processes on the device."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pynvml
import pytest

from engine.judging.neighbours import PATIENCE_S, Neighbour, Neighbours
from engine.judging.nvml import NvmlDevice, ProcessInfo, UtilizationSample, now_s
from engine.judging.workers.device_state import watching

LIBRARY = """
#include <string.h>
typedef struct { unsigned pid; unsigned long long memory; unsigned gi, ci; } info;
typedef struct { unsigned pid; unsigned long long at; unsigned sm, mem, enc, dec; } sample;
static int handle;
static unsigned long long energy = 5000;
int nvmlInit_v2(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { strncpy(text, "570.86", size); return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    if (strcmp(uuid, "GPU-12ab")) return 6;
    *device = &handle;
    return 0;
}
int nvmlDeviceGetClockInfo(void *d, unsigned kind, unsigned *mhz) {
    if (d != &handle) return 2;
    *mhz = kind == 1 ? 1980 : kind == 2 ? 3201 : 0;
    return 0;
}
int nvmlDeviceGetTemperature(void *d, unsigned kind, unsigned *c) { *c = 41; return kind; }
int nvmlDeviceGetPowerUsage(void *d, unsigned *mw) { *mw = 512500; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *d, unsigned long long *mj) { *mj = energy += 1500; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, unsigned long long *bits) { *bits = 0x1 | 0x4; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *count, info *found) {
    if (*count < 2) return 7;
    *count = 2;
    found[0].pid = 11;
    found[1].pid = 22;
    return 0;
}
int nvmlDeviceGetProcessUtilization(void *d, sample *found, unsigned *count, unsigned long long since) {
    if (*count < 3) { *count = 3; return 7; }
    sample all[3] = {{11, 2000000, 30, 0, 0, 0}, {11, 3000000, 60, 0, 0, 0}, {22, 1000000, 90, 0, 0, 0}};
    memcpy(found, all, sizeof all);
    *count = 3;
    return 0;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(LIBRARY)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libnvml.so", folder / "nvml.c"], check=True)
    return str(folder / "libnvml.so")


def test_the_structures_are_those_of_nvidias_own_binding() -> None:
    for ours, theirs in (
        (ProcessInfo, pynvml.c_nvmlProcessInfo_v3_t),
        (UtilizationSample, pynvml.c_nvmlProcessUtilizationSample_t),
    ):
        assert [(name, kind) for name, kind in ours._fields_] == list(theirs._fields_)


def test_a_device_says_what_it_goes_through(library: str) -> None:
    device = NvmlDevice.open("12ab", library)
    assert device is not None
    assert (device.sm_clock_mhz(), device.memory_clock_mhz(), device.temperature_c()) == (1980, 3201, 41)
    assert device.power_w() == 512.5
    assert device.throttles() == ("power cap",)
    assert device.driver() == "570.86"
    assert device.pids() == {11, 22}
    assert device.activity(1.5) == {11: 60}
    with watching(device) as observed:
        pass
    assert observed.state.to_json() == {
        "sm_mhz": 1980.0,
        "memory_mhz": 3201,
        "temperature_c": 41,
        "power_w": 512.5,
        "energy_j": 1.5,
        "throttled": ("power cap",),
    }


def test_where_nothing_can_be_asked_nothing_is_said(library: str, tmp_path: Path) -> None:
    assert NvmlDevice.open("34cd", library) is None
    assert NvmlDevice.open("12ab", str(tmp_path / "absent.so")) is None
    with watching(None) as observed:
        pass
    assert observed.state.to_json() == {}


class Device:
    """A device on which processes compute by a script: what each look at it finds."""

    def __init__(self, *looks: dict[int, int]) -> None:
        self.looks = list(looks)
        self.since: list[float] = []

    def activity(self, since_s: float) -> dict[int, int]:
        self.since.append(since_s)
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


@pytest.fixture
def processes(tmp_path: Path) -> Path:
    """Processes by number, name, parent and command line, as the kernel lists them."""
    for pid, name, parent, command in (
        (1, "init", 0, "/sbin/init"),
        (300, "trainer", 1, "python train.py"),
        (301, "notebook", 1, "python -m ipykernel"),
        (400, "python", 1, "python -c engine engine.judging.workers.judge 3 7"),
        (500, "python", os.getpid(), "python child.py"),
        (os.getpid(), "engine", 1, "python -m engine"),
    ):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "comm").write_text(f"{name}\n")
        (folder / "cmdline").write_text(command.replace(" ", "\0"))
        (folder / "stat").write_text(f"{pid} ({name}) S {parent} 0 0")
    return tmp_path


def neighbours(device: Any, processes: Path) -> Neighbours:
    return Neighbours(device, processes, poll_s=0.001)


def test_only_other_people_who_compute_are_neighbours(processes: Path) -> None:
    busy = {300: 40, 301: 90, 302: 99, 400: 80, 500: 70, 1: 2}
    found = neighbours(Device(busy), processes).active()
    assert found == [Neighbour(301, "notebook", 90), Neighbour(300, "trainer", 40)]
    assert str(found[1]) == "process 300 (trainer) computes on it"


def test_what_was_computed_before_does_not_count(processes: Path) -> None:
    device = Device({})
    assert neighbours(device, processes).active() == []
    assert neighbours(device, processes).active(12.5) == []
    assert now_s() - 10 < device.since[0] < now_s()
    assert device.since[1] == 12.5


async def test_timing_waits_until_nobody_else_computes_and_says_for_whom(processes: Path) -> None:
    told: list[str] = []
    device = Device({300: 50}, {300: 50}, {301: 50, 300: 20}, {})
    await neighbours(device, processes).quiet(told.append)
    assert told == ["process 300 (trainer) computes on it", "process 301 (notebook) computes on it", ""]


async def test_patience_with_one_process_ends_and_is_not_spent_again(processes: Path) -> None:
    device = Device({300: 50})
    watched = neighbours(device, processes)
    watched._poll_s = PATIENCE_S / 4
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.judging.neighbours.asyncio.sleep", sleep)
        await watched.quiet(lambda what: None)
        assert sum(slept) == pytest.approx(PATIENCE_S)
        told: list[str] = []
        await watched.quiet(told.append)
    assert sum(slept) == pytest.approx(PATIENCE_S)
    assert told == []


def test_without_our_own_process_among_its_numbers_a_device_tells_of_no_neighbours(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(uuid: str) -> NvmlDevice | None:
        return NvmlDevice.open(uuid, library)

    numbers: Sequence[int] = (11, 33)
    monkeypatch.setattr("engine.judging.neighbours.NvmlDevice", type("Opened", (), {"open": staticmethod(opened)}))
    assert [Neighbours.open("12ab", judge) is not None for judge in numbers] == [True, False]
    assert Neighbours.open("34cd", 11) is None
