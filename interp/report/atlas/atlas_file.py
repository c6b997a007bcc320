"""The atlas of tables of scores as one file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from interp.core.errors import OptionError
from interp.core.files import write_atomically
from interp.draw.colours import Range, declared_range
from interp.report.atlas.build import build_atlas
from interp.report.atlas.page import BUDGET, atlas_page

if TYPE_CHECKING:
    from interp.core.table import HeadTable


def write_report(
    table: HeadTable,
    path: str | os.PathLike,
    *,
    ranges: Mapping[str, Range] | None = None,
    title: str = "Attention heads",
    command: str | None = None,
    beside: Sequence[str] = (),
    budget: int = BUDGET,
) -> int:
    """Write the atlas of one table completely or not at all, and return its size in bytes.

    Equal tables give equal bytes. `build_atlas` and `atlas_page` make the same page of several
    tables, folders and models.

    Args:
        table: the scores, or the effects of ablations.
        path: the file of the page.
        ranges: the colour range of metrics (low, high), None for an end without bound; by default
            those that the metrics declare.
        title: the title of the page.
        command: the command line that made the table.
        beside: names of files in the same folder that the page links to.
        budget: the largest size in bytes. A larger page leaves out details, and states which.

    Raises:
        StoreError: the file cannot be written.
        OptionError: the table is empty, or the page exceeds its budget.
    """
    if not len(table):
        raise OptionError("The table has no rows to show. Give a table with at least one score.")
    atlas = build_atlas(table, title=title, command=command)
    for model in atlas["models"]:
        for metric in model["metrics"]:
            bounds = declared_range(ranges or {}, metric["name"])
            if bounds is not None:
                metric["low"], metric["high"] = bounds
    page = atlas_page(atlas, beside=beside, budget=budget).encode()
    write_atomically(Path(path), page)
    return len(page)
