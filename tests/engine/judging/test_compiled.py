"""Compiled kernels are kept for the same source, and for no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.judging.compiled import CACHES, Compiled
from engine.judging.evaluator import Evaluator
from engine.records import Verdict
from tests.engine.judging.conftest import scale_candidate

CACHE = CACHES[0]


def left_by(folder: Path, name: str) -> Path:
    """A candidate's folder with one compiled file."""
    (folder / CACHE).mkdir(parents=True)
    (folder / CACHE / name).write_text(name)
    return folder


def lent(compiled: Compiled, source: str, folder: Path) -> list[str]:
    folder.mkdir()
    compiled.lend(source, folder)
    return sorted(path.name for path in (folder / CACHE).glob("*"))


def test_the_same_source_gets_what_it_compiled_and_another_gets_nothing(tmp_path: Path) -> None:
    compiled = Compiled(tmp_path / "kept")
    compiled.keep("one", left_by(tmp_path / "a", "kernel.cubin"))
    assert lent(compiled, "one", tmp_path / "b") == ["kernel.cubin"]
    assert lent(compiled, "two", tmp_path / "c") == []


def test_a_copy_is_lent(tmp_path: Path) -> None:
    compiled = Compiled(tmp_path / "kept")
    compiled.keep("one", left_by(tmp_path / "a", "kernel.cubin"))
    lent(compiled, "one", tmp_path / "b")
    (tmp_path / "b" / CACHE / "kernel.cubin").write_text("changed")
    lent(compiled, "one", tmp_path / "c")
    assert (tmp_path / "c" / CACHE / "kernel.cubin").read_text() == "kernel.cubin"


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    compiled = Compiled(tmp_path / "kept", most=2)
    for name in ("one", "two"):
        compiled.keep(name, left_by(tmp_path / name, name))
    lent(compiled, "one", tmp_path / "again")
    compiled.keep("three", left_by(tmp_path / "three", "three"))
    assert [bool(lent(compiled, name, tmp_path / f"to {name}")) for name in ("one", "two", "three")] == [
        True,
        False,
        True,
    ]
    assert len(list((tmp_path / "kept").iterdir())) == 2


def test_a_link_in_place_of_the_cache_is_not_followed(tmp_path: Path) -> None:
    compiled = Compiled(tmp_path / "kept")
    (tmp_path / "a").mkdir()
    left_by(tmp_path / "elsewhere", "secret")
    (tmp_path / "a" / CACHE).symlink_to(tmp_path / "elsewhere" / CACHE)
    compiled.keep("one", tmp_path / "a")
    assert lent(compiled, "one", tmp_path / "b") == []


@pytest.mark.asyncio(loop_scope="module")
async def test_a_candidate_judged_again_finds_its_own_kernels(judge: Evaluator) -> None:
    listing = """
folder = os.environ["HOME"] + "/compile/triton"
print("FOUND", len(os.listdir(folder)) if os.path.isdir(folder) else 0)
"""
    source = scale_candidate() + f"\nimport os\n{listing}\n"
    first = await judge.evaluate(source)
    again = await judge.evaluate(source)
    other = await judge.evaluate(source + "# another\n")
    assert [evaluation.verdict for evaluation in (first, again, other)] == [Verdict.CORRECT] * 3
    found = [int(evaluation.log.split("FOUND ")[1].split()[0]) for evaluation in (first, again, other)]
    assert found[0] == found[2] == 0
    assert found[1] > 0
