"""Command `interp report`: the atlas of heads, under the name of the page before it."""

from __future__ import annotations

from typing import Any

import click

from interp.cli.atlas import atlas_options, write_atlas

GROUP = "Pages"


@click.command(epilog="Example: interp report results gpt2 -o page.html")
@atlas_options("report.html")
def report(**options: Any) -> None:
    """Write one self-contained page that works offline; the same page as `interp atlas`.

    Each argument is a folder that `interp` commands wrote with --out, a table of scores (.parquet,
    .csv, .json), or a MODEL, which is scored first. Everything in a folder is on the page: scores,
    roles of heads, ablations, circuits, pruning, checks, trees, attributions, comparisons.
    """
    click.get_current_context().exit(write_atlas("report.html", **options))
