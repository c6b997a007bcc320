"""Page of head scores: one HTML file that needs no network and is readable without scripts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.errors import OptionError
from interp.core.files import write_atomically
from interp.draw.colours import Range, Scale, declared_range
from interp.draw.page import render as fill

if TYPE_CHECKING:
    from interp.core.table import HeadTable

# A head as an element with a tooltip, which needs no script, takes about 150 bytes. Beyond the
# first limit a panel is a picture, and a script shows the numbers of a head (about 15 bytes);
# beyond the second limit the numbers are in the file of the table only.
CELLS_AS_ELEMENTS = 30_000
CELLS_WITH_NUMBERS = 500_000
BUDGET = 10_000_000  # bytes of a page that browsers open and mail servers accept
CATALOGUE = 3  # the least number of metrics of a model with a catalogue of special heads
_SCRIPTS = ("heads", "cards")


def write_report(table: HeadTable, path: str | os.PathLike, **options: Any) -> int:
    """Write the page of `heads_page` completely or not at all, and return its size in bytes.

    Raises:
        StoreError: The file cannot be written.
        OptionError: The table is empty, or the page exceeds its budget.
    """
    content = heads_page(table, **options).encode()
    write_atomically(Path(path), content)
    return len(content)


def heads_page(
    table: HeadTable,
    *,
    ranges: Mapping[str, Range] | None = None,
    title: str = "Attention heads",
    command: str | None = None,
    beside: Sequence[str] = (),
    top: int = 5,
    by: str = "end",
    budget: int = BUDGET,
) -> str:
    """Return one HTML page: findings, models side by side, and the maps and top heads per model.

    Equal tables give equal bytes.

    Args:
        table: The scores.
        ranges: The colour range of each metric (low, high), None for an end without bound. A
            metric without a range is coloured by its own scores, and the page states this.
        title: The title of the page.
        command: The command line that made the table.
        beside: Names of files in the same folder that the page links to.
        top: The number of top heads of each metric.
        by: The order of the top heads, as in `HeadTable.top`.
        budget: The largest size in bytes. A larger page is drawn with less detail, and states this.

    Raises:
        OptionError: The table is empty, or the page exceeds the budget with the least detail.
    """
    from interp.report.findings import findings
    from interp.report.side import side_by_side

    if len(table) == 0:
        raise OptionError("The table has no rows to show. Give a table with at least one score.")
    frame: Any = table.to_pandas()
    declared = {metric: declared_range(ranges or {}, metric) for metric in table.metrics}
    scales = {
        metric: Scale.fit(rows["score"], declared[metric])
        for metric, rows in frame.groupby("metric", sort=False)
    }
    ends = {metric: None if found is None else found[1] for metric, found in declared.items()}
    low = {metric for (_, metric), made in table.provenance.items() if made.get("end") == "low"}
    several = len(table.models) > 1
    shown: dict[str, Any] = {
        "command": command, "beside": beside, "several": several, "models": table.models,
        "counts": [_count(len(table), "score"), _count(len(table.models), "model"),
                   _count(len(table.metrics), "metric")],
        "findings": findings(table, ends),
        "strips": side_by_side(frame, scales, low) if several else None,
    }  # fmt: skip
    levels = [level for level in _DETAIL if level <= _by_count(len(table))]
    page = ""
    for level in levels:
        sections = list(_sections(table, frame, scales, ends, level=level, top=top, by=by))
        over = "" if level == levels[0] else f"{budget / 1e6:g}"
        page = fill(
            "heads", title, scripts=_SCRIPTS, sections=sections, level=level, over=over, **shown
        )
        if len(page.encode()) <= budget:
            return page
    raise OptionError(
        f"A page of these {len(table):,} scores takes {len(page.encode()) / 1e6:.3g} MB with the"
        f" least detail, more than {budget / 1e6:g} MB. Give fewer models or metrics, or a larger"
        " budget."
    )


_DETAIL = (3, 2, 1, 0, -1)  # from the largest page to the smallest


def _by_count(scores: int) -> int:
    """Return the most detail for a number of scores."""
    return 3 if scores <= CELLS_AS_ELEMENTS else 1 if scores <= CELLS_WITH_NUMBERS else 0


def _sections(
    table: HeadTable,
    frame: Any,
    scales: Mapping[str, Scale],
    ends: Mapping[str, float | None],
    *,
    level: int,
    top: int,
    by: str,
) -> Iterator[dict[str, Any]]:
    """Yield the values of the template for each model."""
    from interp.draw.panel import panel
    from interp.report.findings import catalogue_section
    from interp.report.words import download, every_number, provenance, top_head_tables

    made = table.provenance
    for model, rows in frame.groupby("model", sort=False):
        own, maps = table.where(model=str(model)), []
        shapes = rows.groupby("stack")[["layer", "head"]].max() + 1
        for (metric, stack), cells in rows.groupby(["metric", "stack"], sort=False):
            if level < 0:
                break
            name = f"{metric} · {stack}" if len(shapes) > 1 else str(metric)
            data = download(cells, f"{model} {name}") if level > 2 else ""
            maps.append(
                panel(cells, name, shape=tuple(shapes.loc[stack].tolist()), detail=min(level, 2),
                      data=data, scale=scales[metric])
            )  # fmt: skip
        judged = rows["metric"].nunique() >= CATALOGUE
        yield {
            "model": model, "maps": maps,
            "made": provenance({k[1]: v for k, v in made.items() if k[0] == model}),
            "special": catalogue_section(own, ends) if judged else None,
            "best": top_head_tables(own, scales, top, by),
            "every": every_number(rows) if level > 2 else "",
        }  # fmt: skip


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
