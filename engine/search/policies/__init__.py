"""The search policies, each a module of its own, by the names that `--policy` takes.

A policy is a pure function of snapshot, settings and generator (`engine.search.choice.Policy`); a new one is
a module here and a line in `POLICIES`.
"""

from __future__ import annotations

from engine.search.choice import Policy
from engine.search.policies import (
    adaexplore,
    beam,
    evolution,
    iterative_refinement,
    large_only,
    parallel_sampling,
    single,
)
from engine.settings import SettingsError

POLICIES: dict[str, Policy] = {
    "adaexplore": adaexplore.choose,
    "single": single.choose,
    "parallel_sampling": parallel_sampling.choose,
    "iterative_refinement": iterative_refinement.choose,
    "large_only": large_only.choose,
    "beam": beam.choose,
    "evolution": evolution.choose,
}


def find_policy(name: str) -> Policy:
    """The policy of a name.

    Raises:
        SettingsError: there is none; the message names those there are.
    """
    policy = POLICIES.get(name)
    if policy is None:
        raise SettingsError(f"there is no policy {name!r}; there are {', '.join(POLICIES)}")
    return policy
