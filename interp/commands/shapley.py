"""`interp shapley`: each head's fair share of the work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from interp.commands.causal import Causal, causal_options

if TYPE_CHECKING:
    pass


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "--method",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "exact", "permutations", "surrogate"]),
    help="exact enumerates all sets of up to 16 heads; auto does so where it can.",
)
@click.option(
    "--sem",
    "target_sem",
    type=click.FloatRange(min=0, min_open=True),
    help="Stop when the sampling error of every head is at most this.",
)
@click.option(
    "--evaluations",
    "max_evaluations",
    type=click.IntRange(1),
    help="Evaluations of the task at most.",
)
@click.option("--per-layer", is_flag=True, help="Each layer's heads among themselves, exactly.")
@click.option("--banzhaf", "power", is_flag=True, help="Banzhaf values instead.")
@click.option(
    "--truncated", is_flag=True, help="Held and Yang's truncated estimator instead; it is biased."
)
@click.option(
    "--interactions",
    type=click.IntRange(0),
    default=0,
    metavar="K",
    help="Also the pairwise interactions of the first K heads.",
)
@click.option("--top", default=5, show_default=True, type=click.IntRange(1), help="Heads to print.")
@causal_options
def shapley(
    causal: Causal,
    sources: tuple[str, ...],
    top: int,
    interactions: int,
    per_layer: bool,
    power: bool,
    truncated: bool,
    **budget: Any,
) -> None:
    """Share the task out among the heads of each MODEL, over every order of adding them.

    A backup head shares the credit with the head it backs up. The values add up to the whole:
    the gap is printed.
    """
