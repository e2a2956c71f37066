from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from skills.errors import SkillError
from skills.records import Rule, Skill, SkillKind, SkillStatus
from skills.rule_files import BLANK, from_text, read_rule, read_rules, shipped_rules, to_text, write_rule

ROOT = Path(__file__).parents[2]

NASTY_TEXTS = [
    "plain",
    "two\nlines\n",
    "\nstarts and ends with a line break\n\n",
    "it's \"quoted\" and 'quoted'",
    "ends with a single quote'",
    'ends with a double quote"',
    "holds ''' inside",
    'holds """ inside',
    "holds ''' and \"\"\" and \\ and \\n and \\u0041",
    'x = "a\\"b" # comment\n\tindented with a tab\n',
    "trailing blanks   \n   \n",
    "[b]markup[/b] [/b] [@click=app.quit]x[/] {braces} %s",
    "ünïcödé 漢字 🙂 \u2028 \ufeff",
    "= [table]\nkey = 'value'\n",
]


def skill(rule: Rule, revision: int) -> Skill:
    return Skill(
        id=4,
        revision=revision,
        status=SkillStatus.ACTIVE,
        enabled=True,
        author="ann",
        reason="",
        changed_at=0.0,
        **rule.changes(),
    )


@pytest.mark.parametrize("text", NASTY_TEXTS)
def test_any_text_survives_writing_and_reading(text: str, tmp_path: Path) -> None:
    rule = Rule(
        name="nasty",
        statement="x" + text.strip(),
        kind=SkillKind.SPEED,
        scope="s" + text.strip(),
        stage="run",
        probe=text,
        counter_probe=text * 2,
        expect="e" + text.strip(),
    )
    assert from_text(to_text(rule)) == rule
    assert from_text(to_text(rule, guide=True)) == rule
    assert read_rule(write_rule(tmp_path, rule)) == rule


def test_an_editor_that_saves_with_carriage_returns_changes_nothing() -> None:
    rule = shipped_rules()[0]
    assert from_text(to_text(rule).replace("\n", "\r\n")) == rule


def test_a_pattern_with_backslashes_and_quotes_survives() -> None:
    rule = Rule(name="p", statement="A rule.", pattern="""{"rule": {"kind": "identifier", "regex": "^\\\\w+'''$"}}""")
    assert from_text(to_text(rule)) == rule


@pytest.mark.parametrize("rule", shipped_rules(), ids=lambda rule: rule.name)
def test_the_shipped_rules_survive_writing_and_reading(rule: Rule) -> None:
    assert from_text(to_text(rule)) == rule


def test_probes_are_written_as_a_person_would_write_them() -> None:
    text = to_text(Rule(name="p", statement="A rule.", probe='import triton\nx = "a\\n"\n', expect="e"))
    assert "probe = '''\nimport triton\nx = \"a\\n\"\n'''\n" in text


def test_a_skills_text_names_the_revision_that_an_edit_starts_from() -> None:
    rule = Rule(name="p", statement="A rule.")
    assert "revision" not in to_text(rule)
    assert from_text(to_text(skill(rule, 7))).revision == 7


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('name = "a"\nname = "b"\n', r"rule.toml is not TOML: .*line 2"),
        ('name = "a"\nstatment = "x"', r"rule.toml: the field statment is unknown"),
        ('statement = "A rule."', r"rule.toml: the field name is missing"),
        ('name = "a"', r"rule.toml: the field statement is missing"),
        ('name = "a"\nstatement = 3', r"rule.toml: the field statement is not a text"),
        (
            'name = "a"\nstatement = "A rule."\nkind = "law"',
            r"rule.toml: the field kind is 'law': write validity or speed",
        ),
        ('name = "a"\nstatement = "A rule."\nrevision = true', r"rule.toml: the field revision is not a number"),
        ('name = "A B"\nstatement = "A rule."', r"rule.toml: The name 'A B' is not usable"),
        ('name = "a"\nstatement = "\\u001b[2J rule"', r"rule.toml: The statement has the character U\+001B"),
        ('name = "a"\nstatement = "A rule."\nprobe = "x"', r"rule.toml: The field expect is empty"),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence_with_file_and_field(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "rule.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(SkillError, match=sentence) as refusal:
        read_rule(path)
    assert "\n" not in str(refusal.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SkillError, match=r"gone\.toml cannot be read: No such file"):
        read_rule(tmp_path / "gone.toml")
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    with pytest.raises(SkillError, match=r"latin\.toml is not UTF-8 text \(byte 8\)"):
        read_rules(tmp_path)


def test_a_folder_gives_all_its_rules_and_an_empty_one_says_so(tmp_path: Path) -> None:
    with pytest.raises(SkillError, match=r"holds no \*\.toml file"):
        read_rules(tmp_path)
    for rule in shipped_rules():
        write_rule(tmp_path, rule)
    assert read_rules(tmp_path) == shipped_rules()


def test_the_blank_rule_is_refused_until_it_says_something() -> None:
    with pytest.raises(SkillError, match="statement is empty"):
        from_text(to_text(BLANK, guide=True))


def test_the_shipped_rules_are_found_in_an_installed_package(tmp_path: Path) -> None:
    wheel = tmp_path / "package.zip"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in (ROOT / "skills").rglob("*"):
            if path.suffix in (".py", ".toml"):
                archive.write(path, path.relative_to(ROOT))
    program = "from skills.rule_files import shipped_rules; print(len(shipped_rules()))"
    found = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(wheel)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "5\n"
