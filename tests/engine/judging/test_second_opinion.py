"""What the interpreter is certain of counts on a GPU as well; what it only cannot follow does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from engine.judging.evaluator import Evaluator
from engine.judging.processes import clean_environment
from engine.judging.second_opinion import LIGHT, OUTSIDE, THREADS, joined, settings_for, small_task
from engine.judging.settings import JudgeSettings
from engine.records import Case, CaseResult, Check, Evaluation, Measurement, MeasurementKind, Verdict
from tests.engine.judging.conftest import SCALE_TASK, make_task, scale_candidate

MEASUREMENT = Measurement(MeasurementKind.MEASURED, 10.0, (9.9, 10.1), "launch", "cold", {})
MEASURED = Evaluation(
    Verdict.CORRECT,
    "after",
    "",
    cases=(CaseResult("default", 1.0, Verdict.CORRECT, MEASUREMENT, {}, 8.0, None),),
    time_us=10.0,
    speedup={"eager": 2.0},
)


def opinion(verdict: Verdict, reason: str = "", labels: Sequence[str] = (), *failed: str) -> Evaluation:
    return Evaluation(
        verdict, "honest", reason, labels=tuple(labels), checks=tuple(Check(name, False, "") for name in failed)
    )


OUT = "kernel k failed at line 7: OutOfBounds: it reads 8 elements outside the tensors that it was given"


@pytest.mark.parametrize(
    ("said", "verdict", "labels"),
    [
        (opinion(Verdict.CORRECT), Verdict.CORRECT, ()),
        (opinion(Verdict.CORRECT, "", ["nondeterministic"]), Verdict.CORRECT, ("nondeterministic",)),
        # At small sizes the library may be the better choice.
        (opinion(Verdict.CORRECT, "", ["no_triton", "fallback"]), Verdict.CORRECT, ()),
        (opinion(Verdict.RUNTIME_ERROR, OUT, [], OUTSIDE), Verdict.RUNTIME_ERROR, ()),
        (opinion(Verdict.RUNTIME_ERROR, OUT, ["shape_specialised"]), Verdict.CORRECT, ("shape_specialised",)),
        (opinion(Verdict.RUNTIME_ERROR, OUT), Verdict.CORRECT, ()),
        (opinion(Verdict.RUNTIME_ERROR, "inline assembly cannot be interpreted"), Verdict.CORRECT, ()),
        (opinion(Verdict.INCORRECT, "RaceFound: a program reads what another wrote"), Verdict.INCORRECT, ()),
        (opinion(Verdict.INCORRECT, "wrong values, where programs run in another order"), Verdict.INCORRECT, ()),
        (opinion(Verdict.INCORRECT, "wrong values for secret inputs 1"), Verdict.CORRECT, ()),
        (opinion(Verdict.TIMEOUT, "the candidate did not finish within 60 s"), Verdict.CORRECT, ()),
        (opinion(Verdict.INFRASTRUCTURE_ERROR, "the judge ended"), Verdict.CORRECT, ()),
    ],
)
def test_only_what_is_certain_changes_the_verdict(said: Evaluation, verdict: Verdict, labels: tuple[str, ...]) -> None:
    joint = joined(MEASURED, said)
    assert (joint.verdict, joint.labels) == (verdict, labels)
    assert (joint.time_us is None) == (verdict is not Verdict.CORRECT)
    assert (joint.cases[0].measurement is None) == (verdict is not Verdict.CORRECT)
    assert joint.checks[-1].passed == (verdict is Verdict.CORRECT)
    if verdict is not Verdict.CORRECT:
        assert said.reason in joint.reason


def test_an_incorrect_candidate_is_not_discussed_further() -> None:
    wrong = replace(MEASURED, verdict=Verdict.INCORRECT)
    assert joined(wrong, opinion(Verdict.CORRECT, "", ["nondeterministic"])) is wrong
    assert joined(MEASURED, None) is MEASURED


@pytest.mark.parametrize(("failed", "kept"), [((LIGHT,), False), ((LIGHT, THREADS), True), ((THREADS,), True)])
def test_a_simpler_form_explains_a_time_below_the_bound_and_nothing_else(failed: tuple[str, ...], kept: bool) -> None:
    fast = replace(MEASURED, labels=("review",), checks=tuple(Check(name, False, "") for name in failed))
    joint = joined(fast, opinion(Verdict.CORRECT, "", ["algebraic_collapse"]))
    assert ("review" in joint.labels) == kept


def test_only_cases_with_a_small_form_are_asked() -> None:
    task = replace(
        make_task(SCALE_TASK), cases=(Case("large", overrides={"ROWS": 8}), Case("both", small_overrides={"ROWS": 2}))
    )
    small = small_task(task)
    assert small is not None
    assert [case.name for case in small.cases] == ["both"]
    assert small_task(make_task(SCALE_TASK)) is None


def test_what_is_judged_without_a_gpu_sees_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    seen = {
        device: clean_environment(tmp_path, device, single_threaded=True)["CUDA_VISIBLE_DEVICES"]
        for device in ("cpu", "auto", "cuda:1")
    }
    assert seen == {"cpu": "", "auto": "3,5", "cuda:1": "5"}


async def test_the_interpreter_judges_beside_and_gives_no_time(cpu_settings: JudgeSettings) -> None:
    """The same way as on a GPU, with a first opinion that comes from an interpreter as well."""
    task = make_task(SCALE_TASK, {"ROWS": 7, "COLUMNS": 50})
    async with Evaluator(task, cpu_settings) as judge:
        judge._interpreter = second = Evaluator(task, settings_for(cpu_settings))
        evaluation = await judge.evaluate(scale_candidate())
        assert second._crew is not None
        assert [worker.name for worker in second._crew._workers] == ["judge", "nursery"]
        alone = await second.evaluate(scale_candidate())
        folder = second._crew.folder
    assert evaluation.correct
    assert evaluation.time_us is not None
    assert evaluation.checks[-1] == Check("second opinion of the interpreter", True, "correct at the small sizes")
    assert (alone.correct, alone.time_us) == (True, None)
    assert not folder.exists()
