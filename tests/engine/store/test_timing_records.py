"""What the store keeps for timing: baselines that later runs take over, the times to beat, who is waited for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.records import CaseResult, Evaluation, Measurement, MeasurementKind, Verdict
from engine.settings import RunSettings
from engine.store.control import Control
from engine.store.reader import Reader
from engine.store.run_store import RunStore
from engine.tasks.catalogue import find_task
from tests.engine.store.conftest import grow

FINGERPRINT = {"device_id": "GPU-1", "mode": "launch", "cache": "cold", "dtype": "", "torch": "2.13.0"}


def facts(eager_us: float, **fingerprint: str) -> dict[str, Any]:
    compared = {"eager_us": eager_us, "band": 0.01, "relative": {"compile": [0.5, 0.002]}, "peak_bytes": {"eager": 7}}
    case = {
        "name": "default",
        "tiers": {"exact": {"eager": eager_us, "compile": eager_us / 2}},
        "bounds": {"exact": 2.0},
        "compared": {"exact": compared},
    }
    return {"fingerprint": FINGERPRINT | fingerprint, "cases": [case]}


def test_another_run_of_the_task_takes_over_what_was_measured_last_under_the_same_circumstances(
    db: Path, store: RunStore
) -> None:
    for eager_us in (9.0, 10.0):
        store.keep_baselines("H200", "measured", facts(eager_us))
    with Control(db) as control:
        same, another = (control.create_run(find_task(name), RunSettings()) for name in ("softmax", "layer_norm"))
    later, elsewhere = RunStore.take(db, same), RunStore.take(db, another)
    assert later.known_baselines(FINGERPRINT) == [
        {
            "case": 0,
            "tier": "exact",
            "eager_us": 10.0,
            "band": 0.01,
            "relative": {"compile": [0.5, 0.002]},
            "peak_bytes": {"eager": 7},
        }
    ]
    with Reader(db) as reader:
        assert reader.known_baselines(find_task("softmax"), FINGERPRINT) == later.known_baselines(FINGERPRINT)
        assert reader.known_baselines(find_task("cross_entropy"), FINGERPRINT) == []
    for changed in ({"torch": "2.14.0"}, {"mode": "graph"}, {"device_id": "GPU-2"}, {"dtype": "float16"}):
        assert later.known_baselines(FINGERPRINT | changed) == []
    assert elsewhere.known_baselines(FINGERPRINT) == []
    later.close()
    elsewhere.close()


def test_modelled_baselines_are_never_taken_over(store: RunStore) -> None:
    store.keep_baselines("cpu", "modelled", facts(9.0))
    assert store.known_baselines(FINGERPRINT) == []


def test_the_times_to_beat_are_those_of_the_best_by_case(store: RunStore) -> None:
    assert store.best_times() == {}
    for time_us in (8.0, 6.0, 7.0):
        number = grow(store, f"kernel {time_us}", judge=False)
        assert store.claim(number)
        measurement = Measurement(MeasurementKind.MEASURED, time_us, (time_us, time_us))
        cases = (CaseResult("default", 1.0, Verdict.CORRECT, measurement),)
        evaluation = Evaluation(
            Verdict.CORRECT, "time", "", cases=cases, time_us=time_us, speedup={"eager": 2.0},
            speedup_ci95={"eager": (1.9, 2.1)}, standing={"eager": "faster"},
        )  # fmt: skip
        store.evaluated(number, evaluation, 2.0, 1.0)
    assert store.best_times() == {"default": 6.0}
    with Reader(store_path(store)) as reader:
        found = reader.evaluation(store.run_id, 2)
    assert found is not None
    assert (found.speedup_ci95, found.standing) == ({"eager": (1.9, 2.1)}, {"eager": "faster"})


def store_path(store: RunStore) -> Path:
    (row,) = store._connection.execute("PRAGMA database_list").fetchall()
    return Path(row[2])


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_wait_is_shown_while_it_lasts(db: Path, run: int, store: RunStore, goes_on: bool) -> None:
    number = grow(store, "kernel", judge=False)
    store.claim(number)
    with Reader(db) as reader:
        assert reader.awaited(run) == []
        store.device_awaited(number, "process 7 (trainer) computes on it")
        (awaited,) = reader.awaited(run)
        assert (awaited.candidate, awaited.what) == (number, "process 7 (trainer) computes on it")
        if goes_on:
            store.device_awaited(number, "")
        else:
            # An engine that died said nothing at the end of the wait.
            store.requeue(number, "the engine died")
            store.claim(number)
        assert reader.awaited(run) == []
