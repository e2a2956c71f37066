"""The options that decide how kernels are judged, shared by every command that judges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def judging_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options; each is named as its setting, and one that was not typed is None or empty."""
    options = (
        click.option("--device", help="auto, cpu, cuda, cuda:N, or cuda:N,M for several of one model."),
        click.option("--arch", help="What a machine without a GPU compiles for, such as sm_90."),
        click.option("--python", type=click.Path(path_type=str), help="The interpreter that kernels are judged in."),
        click.option("--max-memory", metavar="SIZE", help="Host memory that a candidate may add, such as 8G."),
        click.option(
            "--dtype",
            type=click.Choice(["float32", "float16", "bfloat16"]),
            help="What floating inputs and weights are cast to.",
        ),
        click.option("--numerics", type=click.Choice(["strict", "reduced", "bf16"]), help="The lowest precision tier."),
        click.option(
            "--time", type=click.Choice(["launch", "graph"]), help="Time calls from Python, or a CUDA graph replayed."
        ),
        click.option(
            "--cache", type=click.Choice(["cold", "warm"]), help="Flush the L2 cache before each timed call, or not."
        ),
        click.option(
            "--baseline",
            multiple=True,
            metavar="FILE",
            type=click.Path(path_type=str),
            help="Your own kernel (ModelNew) to compare with; may be repeated.",
        ),
        click.option(
            "--no-regress",
            type=float,
            metavar="PERCENT",
            help="Bar from best what is slower than the baseline on any case by more than this.",
        ),
        click.option("--timeout", type=float, help="Seconds that one candidate may take."),
    )
    for option in reversed(options):
        command = option(command)
    return command
