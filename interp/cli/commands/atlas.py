"""Command `interp atlas`: one page of a model's heads, their roles, and all results."""

from __future__ import annotations

from typing import Any

import click

from interp.cli.atlas import atlas_options, write_atlas

GROUP = "Look"


@click.command(epilog="Example: interp atlas results gpt2 -o atlas.html")
@atlas_options("atlas.html")
def atlas(**options: Any) -> None:
    """Write the atlas of heads: one page of roles, cards and all results.

    Each argument is a folder that `interp` commands wrote with --out, a table of scores (.parquet,
    .csv, .json), or a MODEL, which is scored first. Everything in a folder is on the page: scores,
    roles of heads, ablations, circuits, pruning, checks, trees, attributions, comparisons. The page
    is one file that works offline.
    """
    click.get_current_context().exit(write_atlas(**options))
