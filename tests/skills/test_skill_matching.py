from __future__ import annotations

import pytest

from skills.errors import SkillError
from skills.matching import check_pattern, matches, violations
from skills.records import Skill, SkillKind, SkillStatus
from skills.rule_files import shipped_rules

PATTERNS = {rule.name: rule.pattern for rule in shipped_rules()}


def kernel(body: str, before: str = "", parameters: str = "x, n, BLOCK: tl.constexpr") -> str:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return f"import triton\nimport triton.language as tl\n{before}\n@triton.jit\ndef kernel({parameters}):\n{lines}"


def skill(pattern: str, number: int = 1) -> Skill:
    return Skill(
        id=number,
        name=f"rule-{number}",
        revision=1,
        kind=SkillKind.VALIDITY,
        statement="A rule.",
        scope="",
        stage="compile",
        pattern=pattern,
        probe="",
        counter_probe="",
        expect="",
        status=SkillStatus.ACTIVE,
        enabled=True,
        author="ann",
        reason="",
        changed_at=0.0,
    )


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("arange-power-of-two", kernel("o = tl.arange(0, 96)[None, :]")),
        ("no-break-or-continue", kernel("for i in range(n):\n    if i:\n        continue")),
        ("no-break-or-continue", kernel("while n:\n    break").replace("@triton.jit", "@jit")),
        (
            "no-break-or-continue",
            kernel("while n:\n    break").replace("@triton.jit", "@triton.autotune(configs=[], key=[])\n@triton.jit"),
        ),
        (
            "no-break-or-continue",
            kernel("while n:\n    break").replace("@triton.jit", "@triton.jit(do_not_specialize=[])"),
        ),
        ("no-indexing-by-position", kernel("v = tl.load(x + tl.arange(0, 8))\ntl.store(x, v[3])")),
        ("no-indexing-by-position", kernel("v = tl.zeros((8,), tl.float32)\nw = v[0:4]")),
        ("constexpr-globals", kernel("y = n * SCALE", before="SCALE = 0.5")),
        ("constexpr-globals", kernel("y = tl.load(x, other=LOW, mask=n)", before="LOW = -1e30")),
    ],
)
def test_the_shipped_patterns_find_breaches(name: str, source: str) -> None:
    assert matches(source, PATTERNS[name])


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("arange-power-of-two", kernel("o = tl.arange(0, 1024) + tl.arange(0, BLOCK) + tl.arange(0, 2 * BLOCK)")),
        ("arange-power-of-two", "import triton.language as tl\nlength = tl.arange(0, 96)"),
        ("no-break-or-continue", kernel("tl.store(x, 1.0)", before="for i in range(3):\n    break")),
        ("no-break-or-continue", "def host(n):\n    while n:\n        continue"),
        ("no-indexing-by-position", kernel("v = tl.load(x + tl.arange(0, 8))\nw = v[:, None] + v[None, :] + v[:]")),
        ("no-indexing-by-position", kernel("s = x.shape[0]\nt = (1, 2)\nu = t[0]")),
        ("constexpr-globals", kernel("y = n * SCALE", before="SCALE = tl.constexpr(0.5)")),
        ("constexpr-globals", kernel("BLOCKS = 4\ny = n * BLOCKS", before="BLOCKS = 4")),
        ("constexpr-globals", kernel("y = n * SIZE", before="SIZE = 4", parameters="x, n, SIZE: tl.constexpr")),
        ("constexpr-globals", kernel("y = n * SIZE", before="SIZE = 4", parameters="x, n, SIZE")),
        ("constexpr-globals", kernel("y = n * SIZE", before="SIZE = 4", parameters="x, n, SIZE: tl.constexpr = 8")),
        ("constexpr-globals", kernel("y = n * B", before="SIZE = 4", parameters="x, n, B: tl.constexpr = SIZE")),
        ("constexpr-globals", kernel("for i in range(n):\n    tl.store(x + i, i)", before="i = 4")),
        ("constexpr-globals", kernel("a, b = n, n\ny = a + b", before="a = 1\nb = 2")),
        ("constexpr-globals", kernel("y = tl.sum(x, axis=0) + x.axis", before="axis = 1")),
        (
            "constexpr-globals",
            kernel("tl.store(x, n)", before="SIZE = 4") + "\nprint(SIZE)\nkernel[(SIZE,)](1, 2, SIZE)\n",
        ),
    ],
)
def test_the_shipped_patterns_leave_legal_code_alone(name: str, source: str) -> None:
    assert not matches(source, PATTERNS[name])


def test_violations_name_rule_line_and_first_line_of_the_place_in_order() -> None:
    first, second = skill("tl.exp($X)", 2), skill("tl.load($P, other=$V)", 1)
    source = kernel("a = tl.load(\n    x,\n    other=0.0)\nb = tl.exp(a)\nc = tl.exp(b) + tl.exp(c)")
    found = violations(source, [first, second, skill("", 3)])
    assert [(one.skill.id, one.line, one.text) for one in found] == [
        (1, 6, "tl.load("),
        (2, 9, "tl.exp(a)"),
        (2, 10, "tl.exp(b)"),
    ]


def test_a_plain_pattern_is_looked_for_in_kernels_only_and_a_rule_everywhere() -> None:
    source = "def host():\n    return tl.exp(1)\n"
    assert violations(source, [skill("tl.exp($X)")]) == []
    assert [one.line for one in violations(source, [skill('{"rule": {"pattern": "tl.exp($X)"}}')])] == [2]


@pytest.mark.parametrize("broken", ["def half(:\n", "@@@ ((", "\x00", "\ud800", "    indented\n", "'''never closed\n"])
def test_a_source_with_errors_is_still_searched(broken: str) -> None:
    source = kernel("tl.exp(n)") + "\n" + broken
    assert [one.text for one in violations(source, [skill("tl.exp($X)")])] == ["tl.exp(n)"]


@pytest.mark.parametrize("source", ["", "\n", "(" * 500, "\ud800" * 10])
def test_an_empty_or_absurd_source_has_no_violations(source: str) -> None:
    assert violations(source, [skill(pattern, number) for number, pattern in enumerate(PATTERNS.values())]) == []


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [
        ('{"rule"', "starts like a JSON object but is none"),
        ('{"rules": {}}', "unknown part 'rules'"),
        ('{"constraints": {}}', "lacks a rule"),
        ('{"rule": {"colour": "red"}}', "unknown field `colour`"),
        ('{"rule": {"matches": "in-kernels"}}', "`in-kernels` is not defined"),
        ('{"rule": {"kind": "identifier", "regex": "("}}', "unclosed group"),
    ],
)
def test_a_malformed_pattern_is_refused_in_one_line(pattern: str, sentence: str) -> None:
    with pytest.raises(SkillError, match=sentence) as refusal:
        check_pattern(pattern)
    assert "\n" not in str(refusal.value)
