"""Prompts: shipped templates, what is dropped first, and that the parts are the text."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest

from engine.proposing.briefing import Shown, Subject, Values, local_briefing, structural_briefing
from engine.proposing.prompt import TEMPLATES, Prompt, compose, read_template, template
from engine.records import (
    Candidate,
    CandidateState,
    Check,
    Evaluation,
    KernelResources,
    Numerics,
    ProposerKind,
    Step,
    Verdict,
)
from engine.settings import LlmSettings, RunSettings
from engine.tasks.catalogue import find_task
from skills.records import Skill, SkillKind, SkillStatus

SMALL = read_template(
    "small",
    "version: 7\n[[system]]\nBe brief.\n\n[[user old drop=1 first]]\n# Old\n\n$value\n\n"
    "[[user rules drop=2]]\n# Rules\n\n$value\n\nObey.\n\n[[user]]\nAnswer.\n",
)
VALUES: Values = {"old": ["one " * 30, "two " * 30, ("thr", "ee " * 30)], "rules": ["first " * 20, "second " * 20]}


def text(prompt: Prompt) -> str:
    return prompt.texts[-1][1]


def test_a_prompt_is_its_sections_in_order_without_the_empty_ones() -> None:
    prompt = compose(SMALL, {"old": "", "rules": ["a", "b"]}, 1000)
    assert prompt.texts == [("system", "Be brief."), ("user", "# Rules\n\na\n\nb\n\nObey.\n\nAnswer.")]
    assert (prompt.template, prompt.version, prompt.dropped) == ("small", 7, ())


def test_what_is_too_long_gives_way_in_the_fixed_order_one_item_at_a_time() -> None:
    whole = compose(SMALL, VALUES, 10_000)
    told: list[tuple[str, ...]] = []
    for budget in range(whole.tokens, 20, -1):
        prompt = compose(SMALL, VALUES, budget)
        if not told or told[-1] != prompt.dropped:
            told.append(prompt.dropped)
    assert told == [
        (),
        ("1 of 3 of old",),
        ("2 of 3 of old",),
        ("3 of 3 of old",),
        ("3 of 3 of old", "1 of 2 of rules"),
        ("3 of 3 of old", "2 of 2 of rules"),
    ]
    assert "one" not in text(compose(SMALL, VALUES, whole.tokens - 1))
    assert text(compose(SMALL, VALUES, 1)) == "Answer."


def test_the_parts_of_a_prompt_are_its_text_and_its_length_is_within_the_budget() -> None:
    for budget in (60, 100, 200):
        prompt = compose(SMALL, VALUES, budget)
        assert prompt.tokens <= budget
        assert ["".join(parts) for _, parts in prompt.messages] == [body for _, body in prompt.texts]


@pytest.mark.parametrize(
    "broken",
    [
        "[[user]]\nno version",
        "version: 1\n",
        "version: 1\n[[user a]]\nno value",
        "version: 1\n[[user]]\n$value",
        "version: 1\n[[robot]]\nx",
    ],
)
def test_a_template_that_is_not_well_formed_is_refused(broken: str) -> None:
    with pytest.raises(ValueError, match="the template broken"):
        read_template("broken", broken)


@pytest.mark.parametrize("name", TEMPLATES)
def test_shipped_templates_are_well_formed_and_end_with_what_to_answer(name: str) -> None:
    shipped = template(name)
    assert shipped.version >= 1
    assert shipped.sections[0].role == "system"
    assert shipped.sections[-1].before.startswith("# What to answer")
    assert any(section.name == "feedback" and section.drop is None for section in shipped.sections)


DIGESTS = {
    ("structural", 1): "bd2ffd800a29f44a",
    ("reviser", 1): "f769cb0f7430841d",
    ("tuner", 1): "a00367c01ccbd675",
    ("task_synthesis", 1): "2dca6b0d91a9d040",
    ("rule_statement", 1): "9adbc6f419f3ba0b",
}
"""The text of each version; whoever changes a text raises the version in its file, and adds its digest here."""


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_text_that_changes_gets_another_version(name: str) -> None:
    text = (files("engine.proposing") / "prompts" / f"{name}.md").read_text(encoding="utf-8")
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == DIGESTS[name, template(name).version]


# What the search puts in

FACTS: dict[str, Any] = {
    "kind": "modelled",
    "toolchain": {"triton": "3.7.1", "torch": "2.13.0", "arch": "sm_90"},
    "cases": [
        {
            "name": "default",
            "inputs": [{"dtype": "float32", "shape": [16384, 8192]}],
            "baselines": {"eager": 549.9, "compile": 295.2},
            "bound_us": 249.7,
        }
    ],
}
SUBJECT = Subject(find_task("softmax"), "ModelNew", "cpu (modelling sm_90)", FACTS, RunSettings())
RULE = Skill(
    id=3,
    name="arange-power-of-two",
    revision=2,
    kind=SkillKind.VALIDITY,
    statement="The range of tl.arange must be a power of two.",
    scope="",
    stage="compile",
    pattern="",
    probe="",
    counter_probe="",
    expect="must be a power of 2",
    status=SkillStatus.ACTIVE,
    enabled=True,
    author="shipped",
    reason="",
    changed_at=0.0,
)


def shown(number: int, verdict: Verdict = Verdict.CORRECT, **more: Any) -> Shown:
    candidate = Candidate(
        1, number, None, Step.LOCAL, ProposerKind.LLM, CandidateState.EVALUATED, f"idea {number}", 1, verdict=verdict
    )
    evaluation = Evaluation(verdict, "correct", more.pop("reason", ""), **more)
    return Shown(candidate, f"class ModelNew: number = {number}\n", evaluation)


def test_a_structural_prompt_tells_task_device_ceilings_times_and_what_was_tried() -> None:
    briefing = structural_briefing(
        SUBJECT, [RULE], [shown(4, time_us=310.0, speedup={"eager": 1.77})], ["- rows: 1.20x"]
    )
    prompt, skills = briefing.prompt("structural", 24_000)
    said = text(prompt)
    for words in (
        "class ModelNew(nn.Module)", "torch.softmax(x, dim=-1)", "float32[16384, 8192]", "NVIDIA H200 (sm_90)",
        "4.30 TB/s", "227 KiB", "255 registers", "triton 3.7.1", "eager 549.9 us", "249.7 us", "times are modelled",
        "TF32", "relative error up to 2e-3", "- rows: 1.20x", "Candidate 4 (local): idea 4", "310.0 us", "1.77x eager",
        "number = 4", RULE.statement,
    ):  # fmt: skip
        assert words in said, words
    assert skills == [RULE]
    assert "$value" not in said
    assert "hints" not in said.lower()


def test_a_local_prompt_tells_the_judges_figures_and_the_chain() -> None:
    parent = shown(
        9,
        Verdict.INCORRECT,
        reason="wrong at 3 of 5 seeds",
        checks=(Check("zeros", True), Check("odd_sizes", False, "differs by 0.3 at 19 columns")),
        numerics=Numerics("none", 0.31, 2.0, 1e-7),
        static=(KernelResources("rows", "sm_90", 255, 48, 16640),),
        log="noise\n" * 900 + "the last line",
        labels=("fallback",),
    )
    history = [shown(2), shown(5)]
    prompt, _ = local_briefing(SUBJECT, [], parent, history, ["- 4 warps: 1.1x"], ["try two rows"]).prompt(
        "tuner", 24_000
    )
    said = text(prompt)
    for words in (
        "wrong answers", "wrong at 3 of 5 seeds", "odd sizes: differs by 0.3 at 19 columns", "relative error 3.10e-01",
        "255 registers a thread, 48 bytes of spills, 16640 bytes", "the last line", "falls back on the library",
        "- try two rows", "number = 9", "- 4 warps: 1.1x",
    ):  # fmt: skip
        assert words in said, words
    assert said.index("Candidate 2") < said.index("Candidate 5") < said.index("Candidate 9")
    assert len(said) < 12_000


def test_the_engineers_notes_and_the_numerics_policy_are_in_every_prompt() -> None:
    settings = RunSettings(numerics="strict", llm=LlmSettings(notes="Rows are padded to 128."))
    subject = replace(SUBJECT, settings=settings)
    structural, _ = structural_briefing(subject, []).prompt("structural", 24_000)
    tuner, _ = local_briefing(subject, [], shown(1)).prompt("tuner", 24_000)
    reviser, _ = local_briefing(subject, [], shown(1)).prompt("reviser", 24_000)
    for prompt in (structural, tuner, reviser):
        assert "Rows are padded to 128." in text(prompt)
        assert "up to 1e-5" in text(prompt)
        assert "2e-3" not in text(prompt)


def test_the_budget_drops_old_history_before_rules_and_never_the_parent() -> None:
    parent = shown(9)
    history = [shown(number) for number in range(1, 6)]
    briefing = local_briefing(SUBJECT, [RULE], parent, history)
    whole, _ = briefing.prompt("tuner", 24_000)
    smaller, skills = briefing.prompt("tuner", whole.tokens - 10)
    assert smaller.dropped == ("1 of 5 of history",)
    assert "Candidate 1 " not in text(smaller)
    assert skills == [RULE]
    least, skills = briefing.prompt("tuner", 500)
    assert least.dropped == ("skills", "5 of 5 of history")
    assert (skills, "number = 9" in text(least)) == ([], True)
