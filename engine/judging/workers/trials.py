"""The questions that a candidate is asked: ways of drawing inputs and weights from a secret, and what must come out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import torch

from engine.judging.workers.numerics import Truth
from engine.judging.workers.traits import Traits

DRAWS = 5
"""Secret seeds that every candidate must answer for."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One question: inputs and weights drawn in one way from one secret seed."""

    name: str
    draw: int
    change: str = ""
    weights: str = "initial"
    training: bool = True
    amplified: int | None = None


VALUE_CHANGES = ("signed", "enlarged", "diminished")
"""Changes of inputs to other values of their domain."""

CONTENT_CHANGES = ("exchanged", *VALUE_CHANGES)
"""Changes of inputs that keep their shapes."""

TRIALS = (
    Trial("secret inputs 1", 0),
    Trial("secret inputs 1 with a few values exchanged", 0, "exchanged"),
    Trial("inputs with random signs", DRAWS, "signed"),
    Trial("inputs 4 times as large", DRAWS + 1, "enlarged"),
    Trial("inputs 16 times as small", DRAWS + 2, "diminished"),
    Trial("changed weights", DRAWS + 3, weights="changed"),
)
"""What every candidate must answer for, beside `AGAIN`, `AFTER` and what `Reference.trials` adds."""

AGAIN = (Trial("secret inputs 3", 2), Trial("secret inputs 4", 3))
"""What is asked more than once and in several ways."""

AFTER = Trial("secret inputs 5", 4)
"""Asked when the candidate may believe that all has been asked."""

EVALUATING = Trial("secret inputs 2 in evaluation mode", 1, training=False)
"""Asked where the reference does the same in either mode."""

TRAINING = Trial("secret inputs 2", 1)
"""Asked where it does not."""

FEWER_ROWS = Trial("fewer rows", DRAWS + 5, "fewer rows")
"""Sizes that a candidate need not be made for."""

AMPLIFIED_DRAW = DRAWS + 6
"""What inputs are drawn from that are made larger until they show."""


@dataclass(frozen=True, slots=True)
class Question:
    """A trial made concrete: inputs as a flattened value, and the truth about them.

    `mutated` names the inputs that the reference itself changes, which a candidate must change alike:
    `changes` is the truth about them, in order.
    """

    trial: Trial
    form: Any
    tensors: list[torch.Tensor]
    truth: Truth
    answer_form: Any
    noise: float
    mutated: tuple[int, ...]
    changes: Truth
    traits: tuple[Traits, ...]

    @property
    def bytes(self) -> int:
        """What keeping the question costs."""
        kept = [*self.tensors, *self.truth.own, *self.truth.exact]
        return sum(tensor.numel() * tensor.element_size() for tensor in kept)


def derived_seed(secret: int, *words: object) -> int:
    """A seed that tells nothing about the secret or about its siblings."""
    text = ":".join(map(str, (secret, *words)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")
