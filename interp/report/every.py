"""Every number of a page: as a table that needs no script, and as data to take away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from interp.core.columns import with_error
from interp.draw.page import Table, csv_link, fold

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = ["stack", "layer", "head", "kv_head", "score", "sem", "n", "null", "null_sem"]


def every_number(rows: pd.DataFrame) -> Markup:
    """Heads down, metrics across, of one model; folded until it is asked for."""
    metrics = [str(m) for m in rows["metric"].unique()]
    several = len(set(rows["stack"])) > 1
    heads: dict[str, dict[str, str]] = {}
    records: list[dict[str, Any]] = rows.to_dict("records")  # type: ignore[assignment]
    for row in records:
        name = f"L{row['layer']}H{row['head']}" + (f" {row['stack']}" if several else "")
        cell = with_error(row["score"], row["sem"]) if row["n"] else ""
        heads.setdefault(name, {})[str(row["metric"])] = cell
    lines = ([name, *(cells.get(m, "") for m in metrics)] for name, cells in heads.items())
    table = Table(["head", *metrics], lines, kind="sortable")
    return fold(f"Every number as a table ({len(heads):,} heads)", table)


def download(rows: pd.DataFrame, name: str) -> Markup:
    """A link that holds the rows of one map as CSV, nine digits each."""
    content = rows[_COLUMNS].to_csv(index=False, float_format="%.9g", lineterminator="\n")
    return csv_link(content, "".join(c if c.isalnum() or c in "-_" else "-" for c in name)[:60])
