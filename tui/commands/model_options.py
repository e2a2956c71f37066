"""The options that say who proposes and which model is asked, and what they come to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tui.commands.context import CommandFailed

if TYPE_CHECKING:
    from engine.settings import RunSettings, Settings

_LLM_OPTIONS = {"model": "model", "base_url": "base_url", "api": "api"}
"""The flags that belong to the model's settings, with their names there."""


def model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options; one that was not typed is None."""
    options = (
        click.option(
            "--proposer",
            type=click.Choice(["auto", "compiler", "llm", "mixed", "manual"]),
            help="Who makes the candidates; auto is mixed where a model is named, else compiler; manual asks you.",
        ),
        click.option("--model", metavar="NAME", help="The language model that proposes."),
        click.option("--base-url", metavar="URL", help="Its endpoint, if not OpenAI's: vLLM, Ollama, llama.cpp."),
        click.option("--api", type=click.Choice(["chat", "responses"]), help="Which of OpenAI's interfaces it speaks."),
        click.option(
            "--context",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Your notes on the task, for every prompt.",
        ),
        click.option("--skills", metavar="none|FILE", help="No rules in prompts, or those of a file or folder."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def with_model(values: dict[str, Any], flags: dict[str, Any]) -> dict[str, Any]:
    """The values of a run's settings with the model's flags among them; these leave `flags`.

    Raises:
        CommandFailed: the notes cannot be read, or there are no such rules.
    """
    llm = dict(values["llm"])
    llm.update({name: flags.pop(flag) for flag, name in _LLM_OPTIONS.items() if flag in flags})
    notes = flags.pop("context", None)
    if notes is not None:
        llm["notes"] = _read_notes(notes)
    skills = flags.get("skills")
    if skills not in (None, "none", "active"):
        if not Path(skills).exists():
            raise CommandFailed(f"there are no rules at {skills}; write none, or name a file or folder of rules")
        flags["skills"] = str(Path(skills).resolve())
    return {**values, "llm": llm}


def _read_notes(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        problem = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise CommandFailed(f"the notes {file} cannot be read: {problem}") from error


def ready(settings: RunSettings, all_settings: Settings) -> RunSettings:
    """The settings with the model's address and price, and a word to the person where no price is known.

    Raises:
        SettingsError: a model is to propose and is not named, has no key, or cannot be held to --max-cost.
        SkillError: the rules cannot be read.
    """
    from engine.loop.proposers import asks_a_model, ready_settings
    from skills.rule_files import read_rules

    if settings.skills not in ("none", "active"):
        read_rules(Path(settings.skills))
    settings = ready_settings(settings, all_settings.prices)
    if asks_a_model(settings) and settings.llm.price is None:
        click.echo(
            f"no price is known for {settings.llm.model} here, so its tokens are counted and its cost is not; give it "
            f'in kernelgrove.toml under [prices."{settings.llm.model}"]',
            err=True,
        )
    return settings


def show_preview(db: Path, task: Any, settings: RunSettings, as_json: bool) -> None:
    """Prints the first prompt and where it would go.

    Raises:
        CommandFailed: no model is to propose.
    """
    from engine.api import preview_run
    from engine.loop.proposers import asks_a_model, proposer_name
    from engine.proposing.model import destination
    from engine.proposing.prices import reserve_usd
    from tui.commands.output import print_json

    name = proposer_name(settings)
    if not asks_a_model(settings):
        raise CommandFailed("no model proposes, so nothing leaves this machine; name a model with --model")
    prompt = preview_run(db, task, settings)
    llm = settings.llm
    most = reserve_usd(llm.price, prompt.tokens, llm.max_output_tokens)
    if as_json:
        messages = [{"role": role, "text": text} for role, text in prompt.texts]
        print_json(
            {
                "destination": destination(llm),
                "model": llm.model,
                "api": llm.api,
                "prompt": f"{prompt.template} {prompt.version}",
                "tokens": prompt.tokens,
                "max_usd": most,
                "messages": messages,
            }
        )
        return
    for line in _preview_head(name, destination(llm), prompt.tokens, most, llm.model_dump()):
        click.echo(line)
    for role, text in prompt.texts:
        click.echo(f"----- {role}")
        click.echo(text)


def _preview_head(name: str, to: str, tokens: int, most: float | None, llm: Mapping[str, Any]) -> list[str]:
    cost = "its price is not known" if most is None else f"at most ${most:.4f}"
    lines = [
        f"to: {to} ({llm['api']}), model {llm['model']}",
        f"the first prompt: about {tokens} tokens, an answer of up to {llm['max_output_tokens']}; {cost}",
        "nothing was sent",
    ]
    if name == "mixed":
        lines.insert(2, "before it, the compiler's first kernel is judged; kernels so far are added to the prompt")
    return lines
