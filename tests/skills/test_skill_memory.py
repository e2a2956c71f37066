from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlite_utils import Database

from skills.errors import SkillError, StaleRevision, UnknownSkill
from skills.memory import SHIPPED, VERIFIER, SkillMemory
from skills.migrations import MIGRATIONS
from skills.records import ProbeVerdict, Relation, Rule, RuleChanges, Skill, SkillKind, SkillStatus, Verification
from skills.rule_files import shipped_rules

RULE = Rule(
    name="no-lambda",
    statement="A kernel cannot define a lambda: write a function decorated with triton.jit.",
    probe="probe text",
    counter_probe="counter text",
    expect="unsupported AST node type: Lambda",
)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@pytest.fixture(params=["tuples", "rows"])
def connection(request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    database = sqlite3.connect(":memory:", isolation_level=None)
    if request.param == "rows":
        database.row_factory = sqlite3.Row
    database.execute("PRAGMA foreign_keys = ON")
    database.execute("BEGIN IMMEDIATE")
    MIGRATIONS.apply(Database(database))
    yield database
    database.close()


@pytest.fixture
def memory(connection: sqlite3.Connection) -> SkillMemory:
    return SkillMemory(connection, clock=Clock())


def checked(skill: Skill, verdict: ProbeVerdict, toolchain: str = "triton 3.7.1, sm_90") -> Verification:
    return Verification(skill.id, skill.name, skill.revision, verdict, "what happened", toolchain)


def test_an_added_skill_is_found_by_id_and_by_name_with_all_its_fields(memory: SkillMemory) -> None:
    added = memory.add(RULE, author="ann", reason="seen twice")
    assert memory.get(added.id) == memory.get("no-lambda") == added
    assert added.rule() == replace(RULE, revision=1)
    assert (added.status, added.enabled, added.author, added.reason) == (
        SkillStatus.UNVERIFIED,
        True,
        "ann",
        "seen twice",
    )
    assert added.changed_at == 1001.0


def test_an_edit_is_a_new_revision_and_the_earlier_ones_stay_in_the_history(memory: SkillMemory) -> None:
    first = memory.add(RULE, author="ann")
    second = memory.edit(first.id, 1, author="ben", reason="shorter", statement="No lambda in kernels.")
    third = memory.set_enabled(first.id, False, "cleo")
    assert [skill.revision for skill in (first, second, third)] == [1, 2, 3]
    assert memory.history(first.id) == [first, second, third]
    assert memory.get(first.id) == third


def test_an_edit_from_an_old_revision_is_refused_and_nothing_is_lost(memory: SkillMemory) -> None:
    skill = memory.add(RULE, author="ann")
    edited = memory.edit(skill.id, 1, author="ben", statement="No lambda in kernels.")
    with pytest.raises(StaleRevision, match=r"at revision 2 \(changed by ben\), not 1") as refusal:
        memory.edit(skill.id, 1, author="ann", statement="Something else.")
    assert (refusal.value.expected, refusal.value.current) == (1, 2)
    assert memory.get(skill.id) == edited
    assert memory.history(skill.id) == [skill, edited]


def test_two_writers_on_one_file_cannot_overwrite_each_other(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    here, there = (sqlite3.connect(path, isolation_level=None, timeout=0.1) for _ in range(2))
    here.execute("BEGIN IMMEDIATE")
    MIGRATIONS.apply(Database(here))
    skill = SkillMemory(here).add(RULE, author="ann")
    here.execute("COMMIT")

    there.execute("BEGIN IMMEDIATE")
    SkillMemory(there).set_enabled(skill.id, False, "ben")
    there.execute("COMMIT")
    here.execute("BEGIN IMMEDIATE")
    with pytest.raises(StaleRevision):
        SkillMemory(here).edit(skill.id, skill.revision, author="ann", statement="Mine.")
    here.execute("ROLLBACK")

    assert not SkillMemory(here).get(skill.id).enabled
    here.close()
    there.close()


def test_a_writer_between_reading_and_writing_is_noticed_by_the_update_itself(
    memory: SkillMemory, connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    skill = memory.add(RULE, author="ann")
    read = SkillMemory.get

    def read_then_be_overtaken(self: SkillMemory, wanted: int | str) -> Skill:
        found = read(self, wanted)
        connection.execute("UPDATE skills SET revision = revision + 1 WHERE id = ?", (found.id,))
        return found

    monkeypatch.setattr(SkillMemory, "get", read_then_be_overtaken)
    with pytest.raises(StaleRevision):
        memory.edit(skill.id, 1, author="ben", statement="Lost?")
    monkeypatch.undo()
    assert memory.get(skill.id).statement == RULE.statement


def test_an_edit_or_switch_that_changes_nothing_makes_no_revision(memory: SkillMemory) -> None:
    skill = memory.add(RULE, author="ann")
    assert memory.edit(skill.id, 1, author="ben", **RULE.changes()) == skill
    assert memory.set_enabled(skill.id, True, "ben") == skill
    assert memory.history(skill.id) == [skill]


def test_rolling_back_the_callers_transaction_takes_the_change_with_it(
    memory: SkillMemory, connection: sqlite3.Connection
) -> None:
    skill = memory.add(RULE, author="ann")
    connection.execute("COMMIT")
    connection.execute("BEGIN IMMEDIATE")
    memory.retire(skill.id, "no longer true", "ann")
    assert connection.in_transaction
    connection.execute("ROLLBACK")
    assert memory.get(skill.id) == skill
    assert memory.history(skill.id) == [skill]


def test_writing_outside_a_transaction_is_refused(memory: SkillMemory, connection: sqlite3.Connection) -> None:
    connection.execute("COMMIT")
    with pytest.raises(RuntimeError, match="inside a transaction"):
        memory.add(RULE, author="ann")
    assert memory.find() == []


def test_filters_choose_by_status_switch_and_kind(memory: SkillMemory) -> None:
    on = memory.add(replace(RULE, name="a-on"), author="ann", status=SkillStatus.ACTIVE)
    off = memory.add(replace(RULE, name="b-off"), author="ann", status=SkillStatus.ACTIVE, enabled=False)
    speed = memory.add(replace(RULE, name="c-speed", kind=SkillKind.SPEED), author="ann")
    assert memory.find() == [on, off, speed]
    assert memory.find(status=SkillStatus.ACTIVE) == [on, off]
    assert memory.find(status=SkillStatus.ACTIVE, enabled=True) == [on]
    assert memory.find(enabled=False) == [off]
    assert memory.find(kind=SkillKind.SPEED) == [speed]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"name": "No Lambda"}, "name 'No Lambda' is not usable"),
        ({"name": "a" * 61}, "name has 61 characters"),
        ({"statement": " \n "}, "statement is empty"),
        ({"statement": "x" * 501}, "statement has 501 characters; at most 500"),
        ({"statement": "red \x1b[31m text"}, "statement has the character U\\+001B in line 1"),
        ({"scope": "\x9b31m"}, "scope has the character U\\+009B"),
        ({"probe": "one\ntwo\ud800"}, "probe has the character U\\+D800 in line 2"),
        ({"stage": "link"}, "stage 'link' is unknown: write compile, run or numerics"),
        ({"expect": ""}, "expect is empty"),
        ({"pattern": '{"rule": '}, "pattern starts like a JSON object"),
        ({"pattern": '{"rule": {"kind": "nonsense"}}'}, "pattern cannot be used: Kind `nonsense` is invalid"),
        ({"pattern": "a = 1\nb = 2"}, "Multiple AST nodes"),
    ],
)
def test_an_unacceptable_rule_is_refused_in_one_sentence_that_names_the_field(
    memory: SkillMemory, change: RuleChanges, sentence: str
) -> None:
    skill = memory.add(RULE, author="ann")
    with pytest.raises(SkillError, match=sentence) as adding:
        memory.add(replace(replace(RULE, name="other"), **change), author="ann")
    assert "Stack backtrace" not in str(adding.value)
    with pytest.raises(SkillError, match=sentence):
        memory.edit(skill.id, 1, author="ann", **change)
    assert memory.find() == [skill]


def test_a_name_can_be_taken_only_once(memory: SkillMemory) -> None:
    memory.add(RULE, author="ann")
    other = memory.add(replace(RULE, name="other"), author="ann")
    with pytest.raises(SkillError, match="a rule named no-lambda already"):
        memory.add(RULE, author="ben")
    with pytest.raises(SkillError, match="a rule named no-lambda already"):
        memory.edit(other.id, 1, author="ben", name="no-lambda")
    assert memory.get(other.id) == other


def test_a_change_names_its_author_and_a_retirement_its_reason(memory: SkillMemory) -> None:
    with pytest.raises(SkillError, match="author is empty"):
        memory.add(RULE, author="  ")
    skill = memory.add(RULE, author="ann")
    with pytest.raises(SkillError, match="say why"):
        memory.retire(skill.id, " ", "ann")
    with pytest.raises(UnknownSkill, match="no rule 99"):
        memory.retire(99, "gone", "ann")


def test_text_that_looks_like_markup_or_sql_is_stored_as_it_is(memory: SkillMemory) -> None:
    nasty = "Use [b]'quotes'[/b], \"these\", %s, ? and '); DROP TABLE skills; -- ünïcödé 漢字 🙂."
    skill = memory.add(replace(RULE, statement=nasty), author="O'Neil [/b]")
    assert memory.get(skill.id).statement == nasty
    assert memory.get(skill.id).author == "O'Neil [/b]"


def test_changing_a_probe_asks_for_verification_again_and_changing_the_wording_does_not(memory: SkillMemory) -> None:
    skill = memory.add(RULE, author="ann", status=SkillStatus.ACTIVE)
    reworded = memory.edit(skill.id, 1, author="ann", statement="No lambda in kernels.")
    assert reworded.status is SkillStatus.ACTIVE
    changed = memory.edit(skill.id, 2, author="ann", probe="another probe")
    assert changed.status is SkillStatus.UNVERIFIED
    forced = memory.edit(skill.id, 3, author="ann", status=SkillStatus.ACTIVE)
    assert forced.status is SkillStatus.ACTIVE


def test_a_confirmed_rule_becomes_active_and_a_refuted_one_retires_with_the_toolchain(memory: SkillMemory) -> None:
    skill = memory.add(RULE, author="ann")
    active = memory.record_verification(checked(skill, ProbeVerdict.CONFIRMED))
    assert (active.status, active.author) == (SkillStatus.ACTIVE, VERIFIER)
    retired = memory.record_verification(checked(active, ProbeVerdict.REFUTED, "triton 3.9.0, sm_90"))
    assert (retired.status, retired.reason) == (SkillStatus.RETIRED, "what happened (triton 3.9.0, sm_90)")
    switched = memory.set_enabled(retired.id, False, "ann")
    assert memory.verifiable() == [switched]
    back = memory.record_verification(checked(switched, ProbeVerdict.CONFIRMED))
    assert back.status is SkillStatus.ACTIVE
    assert [answer.verdict for answer, _ in memory.verifications(skill.id)] == ["confirmed", "refuted", "confirmed"]


def test_probes_do_not_overrule_a_persons_retirement_or_an_open_dispute(memory: SkillMemory) -> None:
    retired = memory.retire(memory.add(RULE, author="ann").id, "confusing", "ann")
    assert memory.record_verification(checked(retired, ProbeVerdict.CONFIRMED)) == retired
    disputed = memory.add(replace(RULE, name="other"), author="ann", status=SkillStatus.DISPUTED)
    assert memory.record_verification(checked(disputed, ProbeVerdict.CONFIRMED)) == disputed


def test_an_untestable_probe_takes_belief_away_but_a_missing_one_leaves_a_persons_decision(memory: SkillMemory) -> None:
    probed = memory.add(RULE, author="ann", status=SkillStatus.ACTIVE)
    assert memory.record_verification(checked(probed, ProbeVerdict.UNTESTABLE)).status is SkillStatus.UNVERIFIED
    forced = memory.add(replace(RULE, name="other", probe=""), author="ann", status=SkillStatus.ACTIVE)
    assert memory.record_verification(checked(forced, ProbeVerdict.UNTESTABLE)) == forced


def test_an_answer_about_an_older_claim_is_kept_and_changes_nothing(memory: SkillMemory) -> None:
    skill = memory.add(RULE, author="ann")
    edited = memory.edit(skill.id, 1, author="ben", probe="another probe")
    assert memory.record_verification(checked(skill, ProbeVerdict.REFUTED)) == edited
    assert len(memory.verifications(skill.id)) == 1
    switched = memory.set_enabled(skill.id, False, "ben")
    assert memory.record_verification(checked(edited, ProbeVerdict.CONFIRMED)).status is SkillStatus.ACTIVE
    assert switched.status is SkillStatus.UNVERIFIED


def test_only_claims_that_a_toolchain_has_not_answered_need_it_again(memory: SkillMemory) -> None:
    skill = memory.add(RULE, author="ann")
    memory.retire(memory.add(replace(RULE, name="gone"), author="ann").id, "confusing", "ann")
    assert [one.name for one in memory.verifiable()] == ["no-lambda"]
    active = memory.record_verification(checked(skill, ProbeVerdict.CONFIRMED, "triton 3.7.1, sm_90"))
    memory.set_enabled(skill.id, False, "ben")
    assert memory.verifiable(unseen_by="triton 3.7.1, sm_90") == []
    assert [one.name for one in memory.verifiable(unseen_by="triton 3.6.0, sm_90")] == ["no-lambda"]
    memory.edit(skill.id, active.revision + 1, author="ben", counter_probe="another")
    assert [one.name for one in memory.verifiable(unseen_by="triton 3.7.1, sm_90")] == ["no-lambda"]


def test_evidence_is_kept_once_with_the_revision_it_speaks_of(memory: SkillMemory) -> None:
    skill = memory.add(RULE, author="ann")
    for _ in range(2):
        memory.record_evidence(skill.id, 3, 7, Relation.FAILED_THIS_WAY, detail="line 4", toolchain="triton 3.7.1")
    memory.record_evidence(skill.id, 3, 8, Relation.OBEYED)
    first, second = memory.evidence(skill.id)
    assert (first.run, first.candidate, first.relation, first.detail, first.revision) == (
        3,
        7,
        "failed_this_way",
        "line 4",
        1,
    )
    assert second.relation is Relation.OBEYED
    assert memory.evidence_counts() == {skill.id: {Relation.FAILED_THIS_WAY: 1, Relation.OBEYED: 1}}


def test_a_rule_that_two_correct_candidates_break_is_disputed(memory: SkillMemory) -> None:
    skill = memory.add(RULE, author="ann", status=SkillStatus.ACTIVE)
    for _ in range(2):
        assert memory.record_evidence(skill.id, 1, 4, Relation.CONTRADICTS).status is SkillStatus.ACTIVE
    disputed = memory.record_evidence(skill.id, 2, 4, Relation.CONTRADICTS)
    assert disputed.status is SkillStatus.DISPUTED
    assert disputed.reason == "candidate 4 of run 1 and candidate 4 of run 2 break it and are correct"


def test_contradictions_of_an_earlier_claim_do_not_count_against_the_new_one(memory: SkillMemory) -> None:
    skill = memory.add(RULE, author="ann", status=SkillStatus.ACTIVE)
    memory.record_evidence(skill.id, 1, 4, Relation.CONTRADICTS)
    edited = memory.edit(skill.id, 1, author="ben", statement="Now it says less.")
    assert memory.record_evidence(edited.id, 1, 5, Relation.CONTRADICTS).status is SkillStatus.ACTIVE


def test_a_person_who_believes_a_disputed_rule_again_is_not_overruled_by_the_old_contradictions(
    memory: SkillMemory,
) -> None:
    skill = memory.add(RULE, author="ann", status=SkillStatus.ACTIVE)
    for candidate in (4, 5):
        memory.record_evidence(skill.id, 1, candidate, Relation.CONTRADICTS)
    memory.edit(skill.id, 2, author="ann", status=SkillStatus.ACTIVE, reason="the pattern was too wide")
    assert memory.record_evidence(skill.id, 1, 6, Relation.CONTRADICTS).status is SkillStatus.ACTIVE
    assert memory.record_evidence(skill.id, 1, 7, Relation.CONTRADICTS).status is SkillStatus.DISPUTED


def test_uses_remember_the_revision_that_a_proposal_saw(memory: SkillMemory) -> None:
    skill = memory.add(RULE, author="ann")
    memory.record_uses(5, 9, [skill])
    memory.record_uses(5, 9, [skill])
    memory.edit(skill.id, 1, author="ben", statement="No lambda in kernels.")
    assert memory.used_in(5, 9) == [skill]
    assert [(use.run, use.proposal, use.revision) for use in memory.uses(skill.id)] == [(5, 9, 1)]


def test_seeding_adds_the_shipped_rules_once_as_active(memory: SkillMemory) -> None:
    rules = shipped_rules()
    assert memory.seed(rules).added == tuple(rule.name for rule in rules)
    assert {(skill.status, skill.author, skill.enabled) for skill in memory.find()} == {("active", SHIPPED, True)}
    before = memory.find()
    again = memory.seed(rules)
    assert (again.added, again.updated, again.kept) == ((), (), ())
    assert memory.find() == before


def test_seeding_when_all_is_there_needs_no_transaction(memory: SkillMemory, connection: sqlite3.Connection) -> None:
    memory.seed([RULE])
    connection.execute("COMMIT")
    assert memory.seed([RULE]).added == ()


def test_a_newer_shipped_text_replaces_an_untouched_rule_and_keeps_its_switch(memory: SkillMemory) -> None:
    memory.seed([RULE])
    memory.set_enabled(memory.get("no-lambda").id, False, "ann")
    newer = replace(RULE, statement="A kernel cannot hold a lambda.")
    assert memory.seed([newer]).updated == ("no-lambda",)
    skill = memory.get("no-lambda")
    assert (skill.statement, skill.enabled, skill.author, skill.revision) == (newer.statement, False, SHIPPED, 3)
    assert memory.seed([newer]).updated == ()


def test_seeding_never_overwrites_what_a_person_edited_and_says_that_a_newer_text_exists(memory: SkillMemory) -> None:
    memory.seed([RULE])
    mine = memory.edit(memory.get("no-lambda").id, 1, author="ann", statement="My own words.")
    assert memory.seed([RULE]) == memory.seed([RULE])
    assert memory.seed([replace(RULE, statement="Newer words.")]).kept == ("no-lambda",)
    assert memory.get("no-lambda") == mine


def test_a_renamed_shipped_rule_is_not_added_a_second_time(memory: SkillMemory) -> None:
    memory.seed([RULE])
    memory.edit(memory.get("no-lambda").id, 1, author="ann", name="my-name")
    assert memory.seed([RULE]).added == ()
    assert [skill.name for skill in memory.find()] == ["my-name"]
    assert memory.seed([replace(RULE, statement="Newer words.")]).updated == ("no-lambda",)
    assert memory.get("my-name").statement == "Newer words."


def test_a_persons_rule_or_retirement_under_a_shipped_name_stays(memory: SkillMemory) -> None:
    own = memory.add(replace(RULE, statement="My own rule."), author="ann")
    assert memory.seed([RULE]).kept == ("no-lambda",)
    assert memory.get("no-lambda") == own
    other = replace(RULE, name="other")
    memory.seed([other])
    retired = memory.retire(memory.get("other").id, "not for us", "ann")
    assert memory.seed([replace(other, statement="Newer words.")]).kept == ("other",)
    assert memory.get("other") == retired
