"""What a run keeps of its task stands for all of its cases, as a candidate's time does."""

from __future__ import annotations

import pytest

from engine.judging.facts import CaseFacts, TaskFacts
from engine.loop.process import facts_document
from engine.records import MeasurementKind


def test_baselines_and_bound_are_means_over_the_cases_that_know_them() -> None:
    wide = CaseFacts("wide", 2.0, (), {"eager": 800.0, "compile": 400.0}, bound_us=100.0)
    narrow = CaseFacts("narrow", 1.0, (), {"eager": 100.0}, bound_us=12.5)
    facts = TaskFacts("cpu", {}, MeasurementKind.MODELLED, (wide, narrow))
    assert facts_document(facts)["baselines"] == pytest.approx({"eager": 400.0, "bound": 50.0})
    alone = TaskFacts("cpu", {}, MeasurementKind.MODELLED, (wide,))
    assert facts_document(alone)["baselines"] == {"eager": 800.0, "compile": 400.0, "bound": 100.0}
