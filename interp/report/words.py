"""The readable half of a report: the top heads of each metric, and how the scores were made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from interp.core.columns import with_error
from interp.draw.colours import Scale, scale_ends
from interp.draw.page import Table, fold, pair_list, plainly
from interp.draw.panel import bar
from interp.report.catalogue import prompts

if TYPE_CHECKING:
    from interp.core.table import HeadTable

# Shown first and in this order; what else was recorded follows, and what is missing is said.
_FIRST = ("model_id", "content_hash", "revision", "dtype", "attention", "seed", "prompts", "null")
_EXPECTED = ("model_id", "content_hash", "dtype", "seed", "prompts", "null", "versions")
_BAR = 120  # units wide


def top_head_tables(
    table: HeadTable, scales: Mapping[str, Scale], k: int, by: str = "end"
) -> Markup:
    """One small table per metric of one model, in the order of `HeadTable.top`."""
    several = len(table.stacks) > 1
    out = []
    for metric in table.metrics:
        scale = scales[metric]
        best = table.top(k, metric, by=by).to_pandas()
        low, high = scale_ends(scale)
        what = f"score with its error, null; bars from {low} to {high}"
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
        columns = ["head", (what, "wide"), "score", "null", "n"]
        unit = best["unit"].iloc[0] if len(best) else ""
        out.append(Markup(Table(columns, rows, metric, unit).__html__()))
    return Markup("\n").join(out)


def provenance(made: Mapping[str, Mapping[str, Any]]) -> Markup:
    """What all metrics of a model share, as a list; what differs, as a table by metric."""
    fields = list(dict.fromkeys([*_FIRST, *(field for each in made.values() for field in each)]))
    fields = [field for field in fields if any(field in each for each in made.values())]
    spelled = {
        field: {m: plainly(each.get(field, "not recorded")) for m, each in made.items()}
        for field in fields
    }
    missing = [field for field in _EXPECTED if field not in fields]
    shared = [field for field in fields if len(set(spelled[field].values())) == 1]
    differing = [field for field in fields if field not in shared]
    told = [(field, next(iter(spelled[field].values()))) for field in shared]
    if missing:
        told.append(("not recorded", ", ".join(missing)))
    if not differing:
        return pair_list(told)
    rows = [[metric, *(spelled[field][metric] for field in differing)] for metric in made]
    table = Table(["metric", *differing], rows, kind="made")
    return pair_list(told) + fold("What differs between metrics", table)
