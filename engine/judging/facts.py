"""What the judge says of a task before any candidate, and why it may refuse to judge at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from engine.judging.modelled_time import reference_bound_by, reference_times_us
from engine.records import Audit, MeasurementKind

TIERS = ("exact", "reduced", "bf16")
"""Precision tiers at which baselines are known, from the most precise down."""


class MachineError(Exception):
    """This machine cannot judge; the message is one sentence that says what is missing (exit code 3)."""


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """Shape and dtype of one input, as `float32[16384, 8192]` in `str`."""

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class CaseFacts:
    """One case: its inputs at the large form, and the times to beat, in microseconds.

    Attributes:
        baselines: `eager`, `compile` and `compile_max` at the task's own precision, as far as known.
        bound_us: the speed of light for the task's bytes and operations at the lowest accepted tier; None when unknown.
        tiers: the same baselines by precision tier, `exact`, `reduced` and `bf16`, as far as known.
        bounds: the speed of light by precision tier.
        bound_by: what it comes from by precision tier, `memory` or `compute`.
        bands: by precision tier, how far the reference differed from itself in this session, as a share of 1.
        compared: by precision tier, all that was measured of the baselines, as the judge takes it back.
    """

    name: str
    weight: float
    inputs: tuple[TensorFacts, ...]
    baselines: Mapping[str, float] = field(default_factory=dict)
    bound_us: float | None = None
    tiers: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    bounds: Mapping[str, float] = field(default_factory=dict)
    bound_by: Mapping[str, str] = field(default_factory=dict)
    bands: Mapping[str, float] = field(default_factory=dict)
    compared: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def with_baseline(self, name: str, time_us: float) -> CaseFacts:
        """The facts with one more baseline, the same at every tier."""
        tiers = {tier: {**times, name: time_us} for tier, times in self.tiers.items()}
        return replace(self, tiers=tiers, baselines={**self.baselines, name: time_us})


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """The device and the task as the judge found them.

    Attributes:
        device: what candidates run on, such as `NVIDIA H200` or `cpu (modelling sm_90)`.
        toolchain: versions by name: python, torch, triton, cuda, arch.
        kind: whether times are measured or modelled.
        own: names of people's own baselines.
        fingerprint: what measured times depend on beside the task; empty where times are modelled.
        audit: whether the task can tell right from wrong.
    """

    device: str
    toolchain: Mapping[str, str]
    kind: MeasurementKind
    cases: tuple[CaseFacts, ...]
    notes: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    audit: Audit | None = None


def case_facts(message: Mapping[str, Any], arch: str, lowest_tier: str) -> CaseFacts:
    """The facts in the judge's own words; without a GPU the baselines are modelled for `arch`.

    Args:
        message: one case of the judge's message `ready`.
        arch: the architecture that is modelled.
        lowest_tier: the lowest precision tier that the run accepts.
    """
    compared = message["compared"]
    tiers = {tier: times_us(found) for tier, found in compared.items()}
    bounds = {tier: (float(us), str(by)) for tier, (us, by) in message["bounds"].items()}
    cost = message["cost"]
    if cost is not None:
        modelled = reference_times(cost, arch)
        tiers = {tier: {"eager": times["eager"]} for tier, times in modelled.items()}
        bounds = {
            tier: (times["bound"], reference_bound_by(cost["bound"], arch, tier)) for tier, times in modelled.items()
        }
    return CaseFacts(
        name=message["name"],
        weight=message["weight"],
        inputs=tuple(TensorFacts(tuple(item["shape"]), item["dtype"]) for item in message["inputs"]),
        baselines=dict(tiers.get("exact", {})),
        bound_us=bounds[lowest_tier][0] if bounds else None,
        tiers=tiers,
        bounds={tier: us for tier, (us, _) in bounds.items()},
        bound_by={tier: by for tier, (_, by) in bounds.items()},
        bands={tier: float(found["band"]) for tier, found in compared.items()},
        compared=dict(compared),
    )


def times_us(compared: Mapping[str, Any]) -> dict[str, float]:
    """Microseconds of every baseline, from what the judge found of them at one tier (`baselines.Compared`)."""
    eager = float(compared["eager_us"])
    return {"eager": eager} | {name: eager * float(ratio[0]) for name, ratio in compared["relative"].items()}


def reference_times(cost: Mapping[str, Any], arch: str) -> dict[str, dict[str, float]]:
    """Modelled eager time and bound of the reference in microseconds, by precision tier."""
    return {tier: reference_times_us(cost["calls"], cost["bound"], arch, tier) for tier in TIERS}
