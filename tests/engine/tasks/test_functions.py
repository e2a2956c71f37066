"""Function tasks: read without being run, opened as modules, with the arguments that their cases ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.tasks.catalogue import FUNCTION, TaskError, entry_point, find_task, read_task
from engine.tasks.domains import Domain
from engine.tasks.opening import TaskProblem, load_module

ROTATE = '''
"""Rotate in place."""
import torch

TOKENS, WIDTH = 512, 128
SMALL = {"TOKENS": 5, "WIDTH": 8}
ENTRY = "rotate"
MUTATES = ["x"]
DOMAINS = {"where": ("index", TOKENS), "scale": "positive"}


def reference(x, where, scale, angle: float = 0.5):
    x.mul_(scale[where][:, None] * angle)


def make():
    return [torch.randn(TOKENS, WIDTH), torch.arange(TOKENS), torch.rand(TOKENS) + 1.0]


CASES = [
    {"name": "drawn", "inputs": {"x": ("float16", TOKENS, WIDTH), "where": ("int64", TOKENS),
                                 "scale": ("float32", TOKENS), "angle": 0.25}, "atol": 1e-3},
    {"name": "made", "inputs": make, "sizes": {"TOKENS": 2048}, "small": {"TOKENS": 3}, "weight": 3, "rtol": 0.01},
]
'''


def test_cases_are_read_without_running_the_file(tmp_path: Path) -> None:
    file = tmp_path / "rotate.py"
    file.write_text(ROTATE + f"\nopen({str(tmp_path / 'ran')!r}, 'w')\n")
    task = find_task(str(file))
    assert not (tmp_path / "ran").exists()
    assert (task.format, entry_point(task)) == (FUNCTION, "rotate")
    drawn, made = task.cases
    assert (drawn.weight, drawn.atol, drawn.rtol) == (1.0, 1e-3, None)
    assert (made.weight, made.atol, made.rtol) == (3.0, None, 0.01)
    assert drawn.overrides == {"CASE": "drawn"}
    assert made.overrides == {"CASE": "made", "TOKENS": 2048}
    assert made.small_overrides == {"TOKENS": 3, "WIDTH": 8}


def _arguments(case: int, small: bool) -> list[Any]:
    found = read_task(ROTATE, "rotate.py").cases[case]
    module = load_module(ROTATE, {**found.overrides, **(found.small_overrides if small else {})}, "task")
    arguments: list[Any] = module.get_inputs()
    return arguments


def test_a_case_makes_its_arguments_with_its_constants_in_place() -> None:
    x, where, scale, angle = _arguments(0, small=True)
    assert (x.shape, x.dtype, where.dtype, angle) == ((5, 8), torch.float16, torch.int64, 0.25)
    assert where.min() >= 0 and where.max() < 5, "the domain's bound must follow the small form"
    assert (scale > 0).all()
    x, where, scale, angle = _arguments(1, small=False)
    assert (tuple(x.shape), tuple(scale.shape), angle) == ((2048, 128), (2048,), 0.5)


def test_it_is_opened_as_a_module_that_changes_its_argument() -> None:
    module = load_module(ROTATE, {"CASE": "made", "TOKENS": 2}, "task")
    x, where, scale, angle = module.get_inputs()
    before = x.clone()
    assert module.Model(*module.get_init_inputs())(x, where, scale, angle) is None
    assert torch.equal(x, before * (scale * angle)[:, None])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (('"name": "drawn", ', ""), "case 0 in CASES has no 'name'"),
        (('"name": "made"', '"name": "drawn"'), "two cases in CASES have the same name"),
        (("CASES = [", "CASES = 2 * ["), "CASES must be a list of dicts that is written out"),
        (('"atol": 1e-3', '"atol": -1e-3'), "atol of case drawn must be a non-negative number"),
        (('"weight": 3', '"weight": 0'), "weight of case made must be a positive number"),
        (('"weight": 3', '"tolerance": 3'), "case 1 in CASES has 'tolerance', which is none of"),
        (('"small": {"TOKENS": 3}', '"small": {"ROWS": 3}'), "case made in the task .* replaces ROWS"),
        (('MUTATES = ["x"]', 'MUTATES = ["y"]'), "MUTATES must be a list of parameters of reference"),
        (('ENTRY = "rotate"', 'ENTRY = "a b"'), "ENTRY must be the name of a function"),
        (("where, scale, angle", "where, scale, *, angle"), "reference must take plain parameters"),
        (("def reference(", "def other("), "defines CASES and no function reference"),
    ],
)
def test_what_is_no_function_task_is_refused_in_one_sentence(change: tuple[str, str], sentence: str) -> None:
    assert change[0] in ROTATE
    with pytest.raises(TaskError, match=sentence) as refusal:
        read_task(ROTATE.replace(*change), "mine/rotate.py")
    assert "mine/rotate.py" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_file_that_is_no_task_at_all_is_told_what_a_task_is() -> None:
    with pytest.raises(TaskError, match=r"neither class Model .* nor reference and CASES"):
        read_task("x = 1", "mine.py")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("torch.rand(TOKENS) + 1.0]", "1.0, 2.0, 3.0]"), "case made makes 5 arguments and reference takes 4"),
        ((", torch.rand(TOKENS) + 1.0]", "]"), "case made makes no scale, which reference needs"),
    ],
)
def test_a_case_that_makes_other_arguments_says_which(change: tuple[str, str], sentence: str) -> None:
    assert change[0] in ROTATE
    module = load_module(ROTATE.replace(*change), {"CASE": "made"}, "task")
    with pytest.raises(ValueError, match=sentence):
        module.get_inputs()


def test_a_syntax_error_keeps_its_line() -> None:
    with pytest.raises(TaskProblem, match="syntax error in line 16"):
        load_module(ROTATE.replace("def make():", "def make(:"), {}, "task")


@pytest.mark.parametrize(
    ("domain", "dtype", "inside"),
    [
        (Domain("positive"), torch.float32, lambda t: bool((t > 0).all())),
        (Domain("unit"), torch.float16, lambda t: bool(((t >= 0) & (t <= 1)).all())),
        (Domain("between", (-2.0, 3.0)), torch.float32, lambda t: bool(((t >= -2) & (t <= 3)).all())),
        (Domain("index", (7.0,)), torch.int32, lambda t: bool(((t >= 0) & (t < 7)).all())),
        (Domain("boolean"), torch.bool, lambda t: t.dtype is torch.bool and bool(t.any()) and not bool(t.all())),
        (Domain("sorted"), torch.float32, lambda t: bool((t.diff() >= 0).all())),
        (Domain("sorted", (50.0,)), torch.int64, lambda t: bool((t.diff() >= 0).all()) and int(t.max()) <= 50),
        (Domain("probability"), torch.float32, lambda t: torch.allclose(t.sum(-1), torch.ones(t.shape[0]))),
    ],
    ids=lambda value: value.kind if isinstance(value, Domain) else None,
)
def test_values_stay_in_their_domain_however_they_are_varied(domain: Domain, dtype: torch.dtype, inside: Any) -> None:
    torch.manual_seed(5)
    values = domain.random((40, 30), dtype)
    assert values.dtype is dtype and inside(values)
    for change in ("signed", "enlarged", "diminished"):
        assert inside(domain.varied(values, change)), change
    varied = [change for change in ("enlarged", "diminished") if not torch.equal(domain.varied(values, change), values)]
    assert len(varied) == (2 if dtype.is_floating_point else 0)


def test_the_documented_example_is_a_task() -> None:
    page = (Path(__file__).parents[3] / "docs" / "tasks.md").read_text()
    source = page.partition("```python\n")[2].partition("```")[0]
    for case in read_task(source, "example.py").cases:
        module = load_module(source, {**case.overrides, **case.small_overrides}, "task")
        arguments = module.get_inputs()
        assert module.Model()(*arguments).shape == arguments[0].shape
