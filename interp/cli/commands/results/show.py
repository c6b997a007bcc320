"""Command `interp results show`: the first heads of each stored metric."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.making import command
from interp.cli.stored import ONLY, ONLY_OPTIONS, stored_scores
from interp.cli.vocabulary import FROM_1, Spelling
from interp.core.errors import OptionError
from interp.core.order import BY
from interp.core.shell_line import shell_line

if TYPE_CHECKING:
    import pandas as pd


@command(
    over="nothing",
    arguments=("folder",),
    inputs=ONLY,
    out="rows",
    options={**ONLY_OPTIONS, "top": Spelling(type=FROM_1), "by": Spelling(type=click.Choice(BY))},
    text="interp.cli.stored:frame_text",
    example="interp results show results -m induction --top 5",
)
def show(
    folder: Path = Path("results"),
    models: Any = (),
    metrics: Any = (),
    *,
    top: int = 5,
    by: str = "end",
    by_cluster: bool = False,
) -> pd.DataFrame:
    """Show the first heads of each metric, with the effective number of prompts.

    The effective number is the number of independent prompts that would give the same standard
    error: prompts that share a period, a needle, a template or an order count as less than one
    each.

    Args:
        top: number of heads per metric.
        by: order of the heads, as in interp score.
        by_cluster: show the score on each cluster of dependent prompts (a common period, needle,
            template or order).
    """
    from interp.core.first_heads import first_heads, first_heads_by_cluster

    table = stored_scores(folder, models, metrics)
    if not len(table):
        advice = shell_line("score", "MODEL", "-o", folder)
        raise OptionError(f"{folder} holds no results; make some with: {advice}")
    return (first_heads_by_cluster if by_cluster else first_heads)(table, top, by)
