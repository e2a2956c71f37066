"""What a person can set, and the layers it comes from: later ones win.

Defaults, the user's `kernelgrove.toml`, the project's `kernelgrove.toml`, `KERNELGROVE_*` variables,
and flags actually typed. A run stores its settings as they were when it was made.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from engine.records import Gate, Label


class SettingsError(ValueError):
    """A setting is wrong; the message names it and says what it may be."""


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)


def _size(value: object) -> object:
    """Bytes from words such as `8G`, `512 MiB` or `1000000`."""
    if not isinstance(value, str):
        return value
    matched = _SIZE.fullmatch(value.strip())
    if matched is None:
        raise ValueError("a size is a number with K, M, G or T, such as 8G")
    return int(float(matched[1]) * _UNITS[matched[2].upper()])


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d)?")
_SECONDS = {None: 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


def _seconds(value: object) -> object:
    """Seconds from words such as `90`, `15m` or `8h`."""
    if not isinstance(value, str):
        return value
    matched = _DURATION.fullmatch(value.strip())
    if matched is None:
        raise ValueError("a time is a number with s, m, h or d, such as 15m or 8h")
    return float(matched[1]) * _SECONDS[matched[2]]


def _moment(value: object) -> object:
    """Unix seconds of the next time that a local clock shows `07:00`."""
    if not isinstance(value, str):
        return value
    matched = _CLOCK.fullmatch(value.strip())
    if matched is None:
        raise ValueError("a moment is a time of day, such as 07:00")
    now = datetime.now().astimezone()
    moment = now.replace(hour=int(matched[1]), minute=int(matched[2]), second=0, microsecond=0)
    return (moment if moment > now else moment + timedelta(days=1)).timestamp()


class PolicySettings(BaseModel):
    """How the search chooses; `name` is one of `engine.search.policies`.

    `structural_probability`, `local_limit` and `context_pool` are those of the published AdaExplore runs, and
    `PAPER_POLICY` is the published method. By default a subtree is worth its best (`max_weight`), exploration is
    smaller to match, and `owed_refinements` and `stagnation` go beyond it (`benchmarks/search.py` compares).
    `actions` and `selection` take parts of the method away. `context` is for `large_only`, `width` the number of a
    beam's members or of islands.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = "adaexplore"
    exploration: Annotated[float, Field(ge=0)] = 0.15
    max_weight: Annotated[float, Field(ge=0, le=1)] = 1.0
    structural_probability: Annotated[float, Field(ge=0, le=1)] = 0.2
    local_limit: Annotated[int, Field(ge=1)] = 2
    context_pool: Annotated[int, Field(ge=1)] = 5
    reward: Literal["log", "paper"] = "log"
    owed_refinements: Annotated[int, Field(ge=0)] = 2
    stagnation: Annotated[float, Field(ge=0)] = 0.25
    actions: Literal["both", "local", "structural"] = "both"
    selection: Literal["ucb", "random", "greedy"] = "ucb"
    context: Literal["recent", "best", "mixed"] = "mixed"
    width: Annotated[int, Field(ge=1, le=64)] = 4


PAPER_POLICY = PolicySettings(exploration=0.3, max_weight=0.0, reward="paper", owed_refinements=0, stagnation=0.0)
"""AdaExplore as published."""


class Price(BaseModel):
    """What a model costs, in US dollars a million tokens; `as_of` is the day the figures were read.

    Tokens read from or written to the server's cache cost as much as any other where no price is given for them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: Annotated[float, Field(ge=0)]
    output: Annotated[float, Field(ge=0)]
    cached: Annotated[float, Field(ge=0)] | None = None
    cache_write: Annotated[float, Field(ge=0)] | None = None
    as_of: str = ""


class LlmSettings(BaseModel):
    """Which model proposes, where it is, and how it is asked. The key is never a setting: `OPENAI_API_KEY` holds it.

    `prompt_tokens` bounds each prompt, `max_output_tokens` each answer, the model's reasoning included. `deadline` is
    what one request may take in all, `silence` how long its server may say nothing, both in seconds. `retries` counts
    those on 429, 5xx and connections that fail. `reasoning_effort` marks a reasoning model, which takes no temperature.
    `notes` is the engineer's own text for every prompt.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = ""
    base_url: str = ""
    api: Literal["chat", "responses"] = "chat"
    azure_endpoint: str = ""
    azure_api_version: str = "2024-10-21"
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    prompt_tokens: Annotated[int, Field(ge=500)] = 24_000
    max_output_tokens: Annotated[int, Field(ge=50)] = 16_000
    deadline: Annotated[float, Field(gt=0)] = 600.0
    silence: Annotated[float, Field(gt=0)] = 120.0
    retries: Annotated[int, Field(ge=0, le=10)] = 3
    price: Price | None = None
    notes: Annotated[str, Field(max_length=100_000)] = ""

    @field_validator("base_url", "azure_endpoint")
    @classmethod
    def _plain_address(cls, value: str) -> str:
        if not value:
            return value
        address = urlsplit(value)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ValueError("write an address such as http://localhost:8000/v1")
        if address.username or address.password or address.query:
            raise ValueError("leave keys and passwords out of the address; OPENAI_API_KEY holds the key")
        return value

    @model_validator(mode="after")
    def _no_temperature_for_reasoning(self) -> Self:
        if self.reasoning_effort is not None and self.temperature is not None:
            raise ValueError("a reasoning model takes no temperature: set reasoning_effort or temperature, not both")
        if self.azure_endpoint and self.base_url:
            raise ValueError("set base_url or azure_endpoint, not both")
        return self


class RunSettings(BaseModel):
    """Everything that decides how one search goes. Times are in seconds, memory in bytes, `no_regress` in percent.

    A search ends by `budget` (candidates), `max_time` (of work), `until` (Unix seconds; a time of day is the next
    one), `target` (`1.5x` eager or `bound:0.9` of the speed of light), `patience` (candidates without a new best) or
    `max_cost`. `on_event` is a command line that is run for a new best, an approval that waits, a stall (no new best
    in `stall_after` candidates) and the end, with JSON on its standard input. `workers` counts for each device.
    `start` says that candidate 1 is the person's own kernel, from which all others grow.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    budget: Annotated[int, Field(ge=1, le=1_000_000)] = 30
    max_time: Annotated[float, Field(gt=0), BeforeValidator(_seconds)] | None = None
    until: Annotated[float, BeforeValidator(_moment)] | None = None
    target: Annotated[str, Field(pattern=r"^(\d+(\.\d+)?x|bound:(0?\.\d+|1(\.0*)?))$")] | None = None
    patience: Annotated[int, Field(ge=1)] | None = None
    stall_after: Annotated[int, Field(ge=1)] = 20
    on_event: str = ""
    start: bool = False
    max_cost: Annotated[float, Field(gt=0)] | None = None
    proposer: Literal["auto", "compiler", "llm", "mixed", "manual"] = "auto"
    llm: LlmSettings = LlmSettings()
    skills: str = "active"
    seed: int = 0
    gate: Gate = Gate.NONE
    max_waiting: Annotated[int, Field(ge=1)] = 8
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    allow: tuple[Label, ...] = ()
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+(,\d+)*)?)$")] = "auto"
    arch: Annotated[str, Field(pattern=r"^sm_\d+$")] = "sm_90"
    python: str = sys.executable
    numerics: Literal["strict", "reduced", "bf16"] = "reduced"
    dtype: Literal["float32", "float16", "bfloat16"] | None = None
    time: Literal["launch", "graph"] = "launch"
    cache: Literal["cold", "warm"] = "cold"
    no_regress: Annotated[float, Field(ge=0)] | None = None
    baseline: tuple[str, ...] = ()
    max_memory: Annotated[int, Field(ge=256 << 20), BeforeValidator(_size)] = 8 << 30
    timeout: Annotated[float, Field(gt=0)] = 120.0
    policy: PolicySettings = PolicySettings()

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices to judge on, one by one: `cuda:0,1` is `cuda:0` and `cuda:1`."""
        kind, _, numbers = self.device.partition(":")
        return tuple(f"{kind}:{number}" for number in dict.fromkeys(numbers.split(","))) if numbers else (self.device,)


class Settings(BaseSettings):
    """The layered settings: the database, and what a new run gets unless a flag says otherwise."""

    model_config = SettingsConfigDict(
        env_prefix="KERNELGROVE_", env_nested_delimiter="__", extra="ignore", env_ignore_empty=True
    )
    toml_files: ClassVar[tuple[Path, ...]] = ()

    db: Path = Path("runs.db")
    ascii: bool = False
    run: RunSettings = RunSettings()
    prices: dict[str, Price] = {}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Orders the layers: typed flags, environment, then files with the project's last word."""
        files = [TomlConfigSettingsSource(settings_cls, path) for path in reversed(cls.toml_files)]
        return (init_settings, env_settings, *files)


def user_settings_file() -> Path:
    """Where the user's own settings are: `$XDG_CONFIG_HOME/kernelgrove/kernelgrove.toml`."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "kernelgrove" / "kernelgrove.toml"


def load_settings(config: Path | None = None, flags: Mapping[str, Any] | None = None) -> Settings:
    """Reads all layers. `config` replaces the project's file; `flags` holds only what was typed.

    Raises:
        SettingsError: a file cannot be read, or a value is not allowed; one sentence.
    """
    if config is not None and not config.is_file():
        raise SettingsError(f"the settings file {config} does not exist; name another with --config")
    project = config or Path("kernelgrove.toml")
    layered = type("LayeredSettings", (Settings,), {"toml_files": (user_settings_file(), project)})
    try:
        settings: Settings = layered(**(flags or {}))
    except ValidationError as error:
        raise SettingsError(_first_problem(error)) from error
    except ValueError as error:
        raise SettingsError(
            f"a settings file cannot be read: {error}; correct {project} or {user_settings_file()}"
        ) from error
    return settings


def parse_run_settings(values: Mapping[str, Any]) -> RunSettings:
    """Checks the settings of a run, as stored or as typed.

    Raises:
        SettingsError: one sentence that names the first wrong setting.
    """
    try:
        return RunSettings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(_first_problem(error)) from error


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"]) or "settings"
    value = problem.get("input")
    secret = any(word in where.lower() for word in ("key", "token", "password", "url", "endpoint"))
    shown = f" (got {value!r})" if not isinstance(value, dict) and not secret else ""
    return f"the setting {where} is wrong: {problem['msg']}{shown}"
