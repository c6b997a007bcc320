"""Tables of a report: the top heads of each metric, all scores, and the provenance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from interp.core.columns import with_error
from interp.draw.colours import Scale, scale_ends
from interp.draw.page import csv_link, fold, pair_list, plainly, table
from interp.draw.panel import bar
from interp.report.findings import prompts

if TYPE_CHECKING:
    import pandas as pd

    from interp.core.table import HeadTable

# Shown first and in this order; other fields follow, and missing ones are named.
_FIRST = ("model_id", "content_hash", "revision", "dtype", "attention", "seed", "prompts", "null")
_EXPECTED = ("model_id", "content_hash", "dtype", "seed", "prompts", "null", "versions")
_BAR = 120  # units wide
_DATA = ["stack", "layer", "head", "kv_head", "score", "sem", "n", "null", "null_sem"]


def top_head_tables(
    scores: HeadTable, scales: Mapping[str, Scale], k: int, by: str = "end"
) -> Markup:
    """Return one table per metric of one model, in the order of `HeadTable.top`.

    Args:
        scores: The scores of one model.
        scales: The colours of each metric.
        k: The number of heads of each metric.
        by: The order, as in `HeadTable.top`.
    """
    several = len(scores.stacks) > 1
    out = []
    for metric in scores.metrics:
        scale, best = scales[metric], scores.top(k, metric, by=by).to_pandas()
        low, high = scale_ends(scale)
        columns = ["head", (f"score with its error, null; bars from {low} to {high}", "wide")]
        rows: list[Any] = [
            [
                f"L{row['layer']}H{row['head']}{' ' + row['stack'] if several else ''}",
                bar(row["score"], scale, sem=row["sem"], null=row["null"], width=_BAR),
                with_error(row["score"], row["sem"]), with_error(row["null"], row["null_sem"]),
                prompts(row["n"], row["clusters"]),
            ]
            for row in best.to_dict("records")
        ]  # fmt: skip
        if not rows:
            rows = [[Markup('<td colspan="5">no head has a score: no prompt had a row</td>')]]
        unit = best["unit"].iloc[0] if len(best) else ""
        out.append(table([*columns, "score", "null", "n"], rows, metric, unit))
    return Markup("\n").join(out)


def provenance(made: Mapping[str, Mapping[str, Any]]) -> Markup:
    """Return the provenance that all metrics of a model share, and what differs as a table."""
    fields = dict.fromkeys([*_FIRST, *(field for each in made.values() for field in each)])
    spelled = {
        field: [plainly(each.get(field, "not recorded")) for each in made.values()]
        for field in fields
        if any(field in each for each in made.values())
    }
    told = [(field, values[0]) for field, values in spelled.items() if len(set(values)) == 1]
    differing = {field: values for field, values in spelled.items() if len(set(values)) > 1}
    if missing := [field for field in _EXPECTED if field not in spelled]:
        told.append(("not recorded", ", ".join(missing)))
    if not differing:
        return pair_list(told)
    rows = zip(made, *differing.values(), strict=True)
    differences = table(["metric", *differing], rows, kind="made")
    return pair_list(told) + fold("Differences between metrics", differences)


def every_number(rows: pd.DataFrame) -> Markup:
    """Return all scores of one model, folded: heads down, metrics across."""
    several = len(set(rows["stack"])) > 1
    cells: dict[str, dict[str, str]] = {}
    for row in rows.to_dict("records"):
        name = f"L{row['layer']}H{row['head']}" + (f" {row['stack']}" if several else "")
        cell = with_error(row["score"], row["sem"]) if row["n"] else ""
        cells.setdefault(name, {})[str(row["metric"])] = cell
    metrics = [str(m) for m in rows["metric"].unique()]
    lines = ([name, *(mine.get(m, "") for m in metrics)] for name, mine in cells.items())
    whole = table(["head", *metrics], lines, kind="sortable")
    return fold(f"Every number as a table ({len(cells):,} heads)", whole)


def download(rows: pd.DataFrame, name: str) -> Markup:
    """Return a link that holds the rows of one map as CSV, with nine digits."""
    content = rows[_DATA].to_csv(index=False, float_format="%.9g", lineterminator="\n")
    return csv_link(content, "".join(c if c.isalnum() or c in "-_" else "-" for c in name)[:60])
