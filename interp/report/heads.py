"""The page of head scores: one HTML file, offline, readable without scripts."""

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

# Every head as an element of its own, with a tooltip that needs no script, is about 150 bytes;
# beyond this many, a panel is a picture, and a script shows the numbers of the head pointed at
# (about 15 bytes); beyond the second limit the numbers are in the table's file only.
CELLS_AS_ELEMENTS = 30_000
CELLS_WITH_NUMBERS = 500_000
BUDGET = 10_000_000  # bytes of a page: what a browser opens and a mail carries without trouble
CATALOGUE = 3  # metrics of a model from which on the page says which heads are special
_SCRIPTS = ("heads", "cards")


def write_report(table: HeadTable, path: str | os.PathLike, **options: Any) -> int:
    """Write the page of `render` at path, whole or not at all; return its bytes.

    Raises:
        StoreError: it cannot be written.
        OptionError: as `render` does.
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
    """Make one HTML page: findings, models side by side, and per model its maps and top heads.

    The same table gives the same bytes.

    Args:
        ranges: the colour range of each metric (low, high), None for an end without bound; a
            metric that has none is coloured by its own scores, and the page says so.
        beside: names of files in the same folder that the page links to.
        by: the order of top heads, as of `HeadTable.top`.
        budget: the size in bytes that the page keeps to by drawing its maps with less detail; it
            says so.

    Raises:
        OptionError: an empty table, or one that no detail brings within the budget.
    """
    from interp.report.findings import findings
    from interp.report.side import side_by_side

    if len(table) == 0:
        raise OptionError("the table has no rows, so there is nothing to show; score something")
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
        f"a page of these {len(table):,} scores takes {len(page.encode()) / 1e6:.3g} MB with the"
        f" least detail, more than {budget / 1e6:g} MB; give fewer models or metrics, or a larger"
        " budget"
    )


page = heads_page
_DETAIL = (3, 2, 1, 0, -1)  # with each level a page says and weighs less


def _by_count(scores: int) -> int:
    """The most detail that so many scores are drawn with."""
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
    """What each model's section shows."""
    from interp.draw.panel import panel
    from interp.report.catalogue import catalogue_section
    from interp.report.every import download, every_number
    from interp.report.words import provenance, top_head_tables

    made = table.provenance
    for model, rows in frame.groupby("model", sort=False):
        own = table.where(model=str(model))
        maps = []
        shapes = rows.groupby("stack")[["layer", "head"]].max() + 1
        for (metric, stack), cells in rows.groupby(["metric", "stack"], sort=False):
            if level < 0:
                break
            name = f"{metric} · {stack}" if len(shapes) > 1 else str(metric)
            shape = int(shapes.loc[stack, "layer"]), int(shapes.loc[stack, "head"])
            data = download(cells, f"{model} {name}") if level > 2 else ""
            maps.append(
                panel(cells, name, shape=shape, detail=min(level, 2), data=data,
                      scale=scales[metric])
            )  # fmt: skip
        yield {
            "model": model,
            "made": provenance({k[1]: v for k, v in made.items() if k[0] == model}),
            "maps": maps,
            "special": catalogue_section(own, ends)
            if rows["metric"].nunique() >= CATALOGUE
            else None,
            "best": top_head_tables(own, scales, top, by),
            "every": every_number(rows) if level > 2 else "",
        }


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
