"""What a person decides about judging, in one immutable record."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field
from typing import Any

from engine.judging.sandbox import setting

NUMERICS = {"strict": ("exact",), "reduced": ("exact", "reduced"), "bf16": ("exact", "reduced", "bf16")}
"""The precision tiers that each `--numerics` setting accepts."""

_WORDS = {"numerics": tuple(NUMERICS), "time_mode": ("launch", "graph"), "cache": ("cold", "warm")}


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    """How candidates are judged.

    Attributes:
        device: `auto` (a GPU where there is one), `cpu`, or `cuda:N`.
        arch: what kernels are compiled for where there is no GPU, such as `sm_90`.
        python: the interpreter that judge, nursery and contestants run in; it needs torch and triton.
        timeout_s: seconds that one candidate may take, waiting for the device not counted.
        seed: the run's secret; inputs are drawn from it, and no candidate's process ever holds it.
        dtype: a torch dtype's name that floating inputs and weights are cast to; None keeps the task's own.
        numerics: `strict`, `reduced` or `bf16`: the lowest precision tier that counts as correct.
        time_mode: `launch` (calls from Python) or `graph` (captured and replayed).
        cache: `cold` (the L2 cache is flushed before each timed call) or `warm`.
        no_regress: by how many percent a best candidate may be slower than the baseline on a case; None does not ask.
        max_output_bytes: how much of what a candidate prints is kept; the rest is dropped.
        max_memory_bytes: host memory that a candidate may add to its process where there is no GPU.
        most_tuned: how many configurations an autotuner in a candidate may try on a GPU.
        baselines: the ways of running the reference that candidates are compared with on a GPU, eager always.
        modelled: whether times are modelled where there is no GPU.
        second_opinion: whether candidates that are correct on a GPU are examined in Triton's interpreter as well.
        open_timeout_s: seconds that judge, nursery and baselines may take to get ready.
        sandbox: `auto` (every layer that the kernel offers), `off`, or names of layers to leave out
            (`engine.judging.sandbox`); the environment's KERNELGROVE_SANDBOX by default.
    """

    device: str = "auto"
    arch: str = "sm_90"
    python: str = sys.executable
    timeout_s: float = 60.0
    seed: int = 0
    dtype: str | None = None
    numerics: str = "reduced"
    time_mode: str = "launch"
    cache: str = "cold"
    no_regress: float | None = None
    max_output_bytes: int = 64 << 10
    max_memory_bytes: int = 8 << 30
    most_tuned: int = 64
    baselines: tuple[str, ...] = ("eager", "compile", "compile_max")
    modelled: bool = True
    second_opinion: bool = True
    open_timeout_s: float = 600.0
    sandbox: str = field(default_factory=setting)

    def __post_init__(self) -> None:
        """Raises ValueError for a word that does not exist."""
        for name, known in _WORDS.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is one of {', '.join(known)}, not {getattr(self, name)!r}")

    @property
    def accepted_tiers(self) -> tuple[str, ...]:
        """The precision tiers that count as correct."""
        return NUMERICS[self.numerics]

    @property
    def lowest_tier(self) -> str:
        """The least precise tier that counts as correct."""
        return self.accepted_tiers[-1]

    def to_json(self) -> dict[str, Any]:
        """The settings as the judge's process takes them."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> JudgeSettings:
        """The settings in a message from the engine."""
        return cls(**{**fields, "baselines": tuple(fields["baselines"])})
