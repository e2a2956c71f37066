"""`skills`: looks at and changes the skill memory. A change names the revision it started from."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click

from engine.proposing.tokens import estimate_tokens
from engine.store.control import Control, author
from engine.store.ledger import RuleUse
from engine.store.reader import Reader
from skills.errors import ProbeUnavailable, SkillError
from skills.memory import SkillMemory
from skills.probe_process import SubprocessProbeRunner
from skills.probes import verify_all
from skills.records import Skill, SkillStatus
from skills.rule_files import BLANK, from_text, read_rules, to_text, write_rule
from tui.commands.context import EXIT_MACHINE, CommandFailed, Options
from tui.commands.output import print_json
from tui.state.spending import money_text, tokens_text
from tui.state.words import plural


@click.group("skills")
def skills_command() -> None:
    """Look at and change the rules that proposals are given."""


@contextmanager
def _memory(options: Options) -> Iterator[tuple[Control, SkillMemory]]:
    with Control(options.settings.db) as control, control.skills() as memory:
        yield control, memory


def _find(memory: SkillMemory, name: str) -> Skill:
    return memory.get(int(name) if name.isdecimal() else name)


def _tell(control: Control, skill: Skill, change: str) -> None:
    control.skill_changed(skill.id, skill.name, skill.revision, change)
    click.echo(f"{skill.name}: {change}, revision {skill.revision}")


@skills_command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
def list_skills(options: Options, as_json: bool) -> None:
    """List the rules."""
    with _memory(options) as (_, memory):
        found = memory.find()
    if as_json:
        print_json([asdict(skill) for skill in found])
        return
    for skill in found:
        switch = "on" if skill.enabled else "off"
        click.echo(
            f"{skill.id:>4}  {switch:<3}  {skill.status:<10}  {skill.name:<28} {skill.statement.splitlines()[0]}"
        )


@skills_command.command("show")
@click.argument("skill")
@click.option("--history", is_flag=True, help="Every revision.")
@click.pass_obj
def show_skill(options: Options, skill: str, history: bool) -> None:
    """Show a rule, by name or number, as the text that `add` and `edit` take."""
    with _memory(options) as (_, memory):
        found = _find(memory, skill)
        revisions = memory.history(found.id) if history else [found]
        statements = {revision.revision: revision.statement for revision in memory.history(found.id)}
    for revision in revisions:
        switch = "on" if revision.enabled else "off"
        click.echo(
            f"# revision {revision.revision} by {revision.author}, {revision.status}, {switch} {revision.reason}"
        )
        click.echo(to_text(revision))
    with Reader(options.settings.db) as reader:
        if uses := reader.rule_uses(found.name):
            click.echo(f"# {_cost_of(uses, statements)}")


def _cost_of(uses: list[RuleUse], statements: dict[int, str]) -> str:
    """How many requests a rule went into, and what its words cost there."""
    tokens = [use.requests * estimate_tokens(statements.get(use.revision, "")) for use in uses]
    said = f"in {plural(sum(use.requests for use in uses), 'prompt')}, about {tokens_text(sum(tokens))} tokens"
    priced = [count * use.price / 1e6 for count, use in zip(tokens, uses, strict=True) if use.price is not None]
    return f"{said}, about {money_text(sum(priced))}" if priced else said


@skills_command.command("add")
@click.argument("file", type=click.Path(exists=True, path_type=Path), required=False)
@click.pass_obj
def add_skill(options: Options, file: Path | None) -> None:
    """Add the rule in FILE, or each of a folder, or one written in $EDITOR."""
    text = _written(to_text(BLANK, guide=True)) if file is None else None
    with _keeping(text), _memory(options) as (control, memory):
        for rule in read_rules(file) if file is not None else [from_text(text or "", "the edited text")]:
            _tell(control, memory.add(rule, author=author()), "added")


@skills_command.command("edit")
@click.argument("skill")
@click.option("--file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Its new text.")
@click.pass_obj
def edit_skill(options: Options, skill: str, file: Path | None) -> None:
    """Change a rule in $EDITOR, or to the text in a file; refused if it was changed meanwhile."""
    with _memory(options) as (_, memory):
        before = _find(memory, skill)
    text = _written(to_text(before, guide=True)) if file is None else None
    with _keeping(text), _memory(options) as (control, memory):
        rule = read_rules(file)[0] if file is not None else from_text(text or "", "the edited text")
        after = memory.edit(before.id, rule.revision or before.revision, author=author(), **rule.changes())
        _tell(control, after, "edited" if after.revision != before.revision else "unchanged")


def _written(text: str) -> str:
    changed = click.edit(text, extension=".toml")
    if changed is None:
        raise CommandFailed("nothing was saved, so nothing was changed")
    return changed


@contextmanager
def _keeping(text: str | None) -> Iterator[None]:
    """Keeps a text that a person typed when it cannot be used, and says where."""
    try:
        yield
    except SkillError as error:
        if text is None:
            raise
        with tempfile.NamedTemporaryFile("w", prefix="kernelgrove-rule-", suffix=".toml", delete=False) as kept:
            kept.write(text)
        raise SkillError(f"{error} What you wrote is kept in {kept.name}.") from error


@skills_command.command("on")
@click.argument("skill")
@click.pass_obj
def switch_on(options: Options, skill: str) -> None:
    """Use a rule again."""
    with _memory(options) as (control, memory):
        _tell(control, memory.set_enabled(_find(memory, skill).id, True, author()), "on")


@skills_command.command("off")
@click.argument("skill")
@click.pass_obj
def switch_off(options: Options, skill: str) -> None:
    """Stop using a rule, without judging it."""
    with _memory(options) as (control, memory):
        _tell(control, memory.set_enabled(_find(memory, skill).id, False, author()), "off")


@skills_command.command("retire")
@click.argument("skill")
@click.argument("reason")
@click.pass_obj
def retire_skill(options: Options, skill: str, reason: str) -> None:
    """Retire a rule that is not true, with the REASON."""
    with _memory(options) as (control, memory):
        _tell(control, memory.retire(_find(memory, skill).id, reason, author()), "retired")


@skills_command.command("verify")
@click.argument("skill", required=False)
@click.option("--arch", help="The architecture to compile the probes for.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
def verify_skills(options: Options, skill: str | None, arch: str | None, as_json: bool) -> None:
    """Run the probes of one rule, or of all: a rule whose probe now passes is retired."""
    with _memory(options) as (_, memory):
        chosen = [_find(memory, skill)] if skill else memory.verifiable()
    settings = options.settings.run
    runner = SubprocessProbeRunner(settings.python, arch or settings.arch)
    try:
        summary = verify_all(chosen, runner)
    except ProbeUnavailable as error:
        raise CommandFailed(str(error), EXIT_MACHINE) from error
    statuses: dict[int, SkillStatus] = {}
    with _memory(options) as (control, memory):
        for verification in summary.verifications:
            before = memory.get(verification.skill)
            after = memory.record_verification(verification)
            statuses[after.id] = after.status
            if after.revision != before.revision:
                control.skill_changed(after.id, after.name, after.revision, "verified")
    if as_json:
        print_json(summary.as_json(statuses))
        return
    for verification in summary.verifications:
        click.echo(f"{verification.name}: {verification.verdict}. {verification.detail}")


@skills_command.command("export")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.pass_obj
def export_skills(options: Options, folder: Path) -> None:
    """Write each rule as a file into FOLDER; `add` reads them back."""
    with _memory(options) as (_, memory):
        found = memory.find()
    folder.mkdir(parents=True, exist_ok=True)
    for skill in found:
        click.echo(write_rule(folder, skill))
